"""The settings of a control plane; `Settings` documents each."""

from dataclasses import dataclass, field

from tenure.core.limits import OUTBOX_TENANT_MAX


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one process of a control plane."""

    store: str = "tenure.db"
    """The file of the embedded store, or a `postgresql://` URL.

    The file is created if it does not exist; `FILE.lock` allows only one process to use it.  Any
    number of processes can share a PostgreSQL store.
    """
    engine: str = "embedded"
    """The engine that executes operations: `embedded` (in this process) or `temporal`."""
    leave_temporal: bool = False
    """Whether the embedded engine takes over operations that Temporal has executed so far."""
    executes_operations: bool = True
    """Whether this process executes operations, or only accepts them for other processes."""
    plane: str = "local"
    """The name of this control plane; part of every resource's key, so it must never change."""
    home: str = ".tenure"
    """The directory of a plane that manages agents.

    It has the store (unless `store` is a URL), the files of the embedded providers, the runtimes,
    and the CLI's token.
    """
    new_home: bool = False
    """Whether this home replaces a lost one as the home of a shared store."""
    stopped_seconds: float = 10.0
    """How long the process that serves the embedded providers may be stopped (SIGSTOP).

    After that another process of the home kills it and serves them.  0: for ever.
    """
    is_worker: bool = False
    """Whether this process is a worker, which reads the shared settings of its home.

    Shared are issuer, sandbox, webhooks_here, drift and the `keep_…` settings.  Otherwise this
    process sets them.
    """
    host: str = "127.0.0.1"
    port: int = 7450
    """The address on which the HTTP API listens."""
    requests_per_second: float = 2_000.0
    """Rate limit of each tenant at the HTTP API; 0: no limit.

    A burst of two seconds' worth is allowed.  Beyond it a request gets 429 with Retry-After.
    """
    requests_at_once: int = 1_000
    """Concurrent requests of each tenant, including waits and streams."""
    issuer: str = ""
    """The public origin of the authorization server; by default host and port."""
    sandbox: str = "auto"
    """Whether local processes run in bubblewrap: `auto` (if it works), `off`, or `require`."""
    traces: bool = False
    """Whether every attempt of a step is a span of the process's OpenTelemetry tracer."""
    bus: str = ""
    """A NATS server (`nats://HOST:PORT`) to whose JetStream every event is published too."""
    webhooks_here: bool = False
    """Whether webhooks may call this machine, also by plain http; for development."""
    reconcile_seconds: float = 30.0
    """Interval of the reconcilers' passes."""
    drift: str = "repair"
    """What to do if a provider differs from the records: `repair` or `report`.

    An agent's spec can override it.
    """
    keep_findings_days: float = 30.0
    """How long a resolved finding is kept; 0: for ever."""
    keep_operations_days: float = 90.0
    """How long an ended operation and its journal are kept, at least one day; 0: for ever.

    An operation that created a resource which an agent still has is kept longer.
    """
    keep_events_per_tenant: int = OUTBOX_TENANT_MAX
    """The maximum of events of each tenant in the outbox, delivered or not.

    All tenants together have at most a million events.  Beyond that the oldest events of the
    tenants with most events are deleted.
    """
    concurrency_max: int = 2_000
    """Operations that are executed at the same time; more are queued."""
    lease_ttl_seconds: float = 15.0
    """A worker that has not renewed its lease for this long counts as dead."""
    collect_after: int = 200_000
    """The threshold of Python's garbage collector, in new objects; 0: Python's default."""
    temporal_address: str = "127.0.0.1:7233"
    """Host and port of Temporal's frontend."""
    temporal_namespace: str = "default"
    temporal_queue: str = ""
    """The task queue of this plane's workers; no other plane may use it.

    Empty: a name that is chosen at random and stored in the plane's store.
    """
    temporal_tls_ca: str = ""
    """File with the CA certificates of Temporal; any of these files implies TLS."""
    temporal_tls_certificate: str = ""
    temporal_tls_key: str = ""
    """Files with the client certificate and its key, if Temporal requires them."""
    temporal_api_key: str = field(default="", repr=False)
    """The API key for Temporal, if it requires one; it implies TLS."""
