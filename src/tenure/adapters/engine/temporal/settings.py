"""How to reach Temporal, and how much of its work this process takes."""

from dataclasses import dataclass

from tenure.core.errors import Invalid


@dataclass(frozen=True, slots=True)
class TemporalSettings:
    """Where Temporal is, who we are there, and how a worker behaves."""

    address: str = "127.0.0.1:7233"
    """Host and port of its frontend."""
    namespace: str = "default"
    task_queue: str = ""
    """At which the workers of this plane work, and no other plane's; empty: as its store says."""
    tls: bool = False
    """Speak TLS; a file below or an API key implies it."""
    tls_server_ca: str = ""
    """File with the certificates that sign the server's; empty: those of the system."""
    tls_server_name: str = ""
    """The name in the server's certificate, if it is not the host in the address."""
    tls_client_certificate: str = ""
    tls_client_key: str = ""
    """Files with this client's certificate and key, for mutual TLS."""
    api_key: str = ""
    works: bool = True
    """Whether this process runs a worker, or only starts and wakes operations."""
    activities_max: int = 200
    """Moves performed here at the same time."""
    workflow_tasks_max: int = 100
    runs_cached_max: int = 2_000
    """Runs kept in memory between two of their tasks; others are replayed."""
    connect_seconds: float = 10.0
    """How long a start tries before it says what is wrong."""
    relay_seconds: float = 1.0
    """Between two looks for operations that no run follows."""
    margin_seconds: float = 15.0
    """How long an operation that is due may stand still before it is looked at."""

    def __post_init__(self) -> None:
        """Refuse what could not work."""
        if bool(self.tls_client_certificate) != bool(self.tls_client_key):
            message = "a client certificate and its key come together: give both files or neither"
            raise Invalid(message)
        sizes = (self.activities_max, self.workflow_tasks_max, self.runs_cached_max)
        if min(sizes) < 1:
            message = "a Temporal worker takes at least one activity, one workflow task, one run"
            raise Invalid(message)
        times = (self.connect_seconds, self.relay_seconds, self.margin_seconds)
        if not all(0 < seconds < float("inf") for seconds in times):
            message = "the times of the Temporal engine are positive numbers of seconds"
            raise Invalid(message)
        if not (self.address and self.namespace):
            message = "the Temporal engine needs an address and a namespace"
            raise Invalid(message)

    @property
    def secured(self) -> bool:
        """Whether the connection is to be TLS."""
        files = (self.tls_server_ca, self.tls_client_certificate, self.tls_server_name)
        return self.tls or any(files) or bool(self.api_key)
