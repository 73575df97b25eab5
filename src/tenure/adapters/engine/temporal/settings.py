"""Settings of the Temporal engine: the connection, and the limits of a worker."""

from dataclasses import dataclass

from tenure.core.errors import Invalid


@dataclass(frozen=True, slots=True)
class TemporalSettings:
    """How to connect to Temporal, and how much work this process takes."""

    address: str = "127.0.0.1:7233"
    """Host and port of Temporal's frontend."""
    namespace: str = "default"
    task_queue: str = ""
    """The task queue of this plane's workers.

    Empty: the queue whose name is in the plane's store.
    """
    tls: bool = False
    """Use TLS; a file below or an API key implies it."""
    tls_server_ca: str = ""
    """File with the CA certificates of the server; empty: those of the system."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it differs from the host in the address."""
    tls_client_certificate: str = ""
    tls_client_key: str = ""
    """Files with this client's certificate and key, for mutual TLS."""
    api_key: str = ""
    executes_operations: bool = True
    """Whether this process runs a worker, or only starts and wakes runs."""
    activities_max: int = 200
    """Activities performed here at the same time."""
    workflow_tasks_max: int = 100
    runs_cached_max: int = 2_000
    """Runs that stay in memory between two workflow tasks; others are replayed."""
    connect_seconds: float = 10.0
    """Timeout of the first connection and of every probe."""
    run_starter_seconds: float = 1.0
    """Interval of the passes that start runs for operations without one."""
    margin_seconds: float = 15.0
    """How long a due operation may be idle before its run is woken."""

    def __post_init__(self) -> None:
        """Raise Invalid for settings that cannot work."""
        if bool(self.tls_client_certificate) != bool(self.tls_client_key):
            message = "a client certificate and its key come together: give both files or neither"
            raise Invalid(message)
        sizes = (self.activities_max, self.workflow_tasks_max, self.runs_cached_max)
        if min(sizes) < 1:
            message = "a Temporal worker takes at least one activity, one workflow task, one run"
            raise Invalid(message)
        times = (self.connect_seconds, self.run_starter_seconds, self.margin_seconds)
        if not all(0 < seconds < float("inf") for seconds in times):
            message = "the times of the Temporal engine are positive numbers of seconds"
            raise Invalid(message)
        if not (self.address and self.namespace):
            message = "the Temporal engine needs an address and a namespace"
            raise Invalid(message)

    @property
    def uses_tls(self) -> bool:
        """Whether the connection uses TLS."""
        files = (self.tls_server_ca, self.tls_client_certificate, self.tls_server_name)
        return self.tls or any(files) or bool(self.api_key)
