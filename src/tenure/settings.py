"""Every setting, one frozen dataclass, each field documented."""

from dataclasses import dataclass, field

from tenure.core.limits import OUTBOX_TENANT_MAX


@dataclass(frozen=True, slots=True)
class Settings:
    """How one control plane runs."""

    store: str = "tenure.db"
    """The embedded store's file, or a `postgresql://` URL.  A file is made if it is not there;
    `FILE.lock` beside it admits one process.  Any number of processes share a PostgreSQL.
    """
    engine: str = "embedded"
    """What moves operations: `embedded`, in this process, or `temporal`."""
    leave_temporal: bool = False
    """Whether Temporal, which moved this store's operations, is left for the embedded engine."""
    works: bool = True
    """Whether this process moves operations, or leaves those it accepts to others."""
    plane: str = "local"
    """The name of this control plane; part of every resource's key, so it must never change."""
    home: str = ".tenure"
    """The directory of a plane that manages agents: its store, its providers' files, its runtimes,
    and the CLI's token.  `run_agent_plane` keeps its store there, unless `store` is a URL.
    """
    new_home: bool = False
    """Whether this home takes the place of another, which is lost, in a store that is shared."""
    stopped_seconds: float = 10.0
    """How long the process that serves the embedded providers may stand stopped (SIGSTOP) until
    another process of the home kills it and serves instead; 0: for ever.
    """
    joins: bool = False
    """Whether this process takes issuer, sandbox, webhooks_here, drift and how long things are kept
    from a home that another has begun, as a worker does, or says them itself.
    """
    host: str = "127.0.0.1"
    port: int = 7450
    """Where the HTTP face listens."""
    requests_per_second: float = 2_000.0
    """What each tenant may ask of the HTTP face, with as much again saved up for a burst of two
    seconds; beyond it 429 and Retry-After.  0: no bound.
    """
    requests_at_once: int = 1_000
    """Requests of each tenant under way at the same time, waits and streams included."""
    issuer: str = ""
    """The origin under which the authorization server is reached; by default host and port."""
    sandbox: str = "auto"
    """Bubblewrap around local processes: `auto` where it works, `off`, or `require`."""
    traces: bool = False
    """Whether every attempt of a step is told to OpenTelemetry's tracer, as the process has it."""
    bus: str = ""
    """A NATS server (`nats://HOST:PORT`) to whose JetStream every event is published as well."""
    webhooks_here: bool = False
    """Whether webhooks may lead to this machine, and by plain http: for development."""
    reconcile_seconds: float = 30.0
    """How often reconcilers look."""
    drift: str = "repair"
    """What is done where reality differs from the records and the agent's spec does not say:
    `repair`, or `report`.
    """
    keep_findings_days: float = 30.0
    """How long a finding is kept after it was resolved; 0: for ever."""
    keep_operations_days: float = 90.0
    """How long an operation is kept after its end, with its journal, a day at least; 0: for ever.
    One that has made something which an agent still holds stays.
    """
    keep_events_per_tenant: int = OUTBOX_TENANT_MAX
    """Events that the outbox has of each tenant at most, delivered or not.  All tenants together
    have a million at most; beyond that those with most events lose their oldest.
    """
    concurrency_max: int = 2_000
    """Operations that are moved at the same time; more wait their turn as rows."""
    lease_ttl_seconds: float = 15.0
    """A worker that has not renewed its lease for so long is taken for dead."""
    collect_after: int = 200_000
    """New objects after which Python's cycle collector looks for garbage; 0 leaves Python's own."""
    temporal_address: str = "127.0.0.1:7233"
    """Host and port of Temporal's frontend."""
    temporal_namespace: str = "default"
    temporal_queue: str = ""
    """The task queue that workers of this plane share, and no other plane's; empty: one of its own,
    which its store names.
    """
    temporal_tls_ca: str = ""
    """File with the certificates that sign Temporal's; naming any of these files means TLS."""
    temporal_tls_certificate: str = ""
    temporal_tls_key: str = ""
    """Files with our own certificate and its key, where Temporal asks for one."""
    temporal_api_key: str = field(default="", repr=False)
    """The key by which Temporal knows us, where it asks for one; it means TLS."""
