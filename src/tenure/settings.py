"""Every setting, one frozen dataclass, each field documented."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How one control plane runs."""

    store: str = "tenure.db"
    """The embedded store's file.  It is made if it is not there; `FILE.lock` beside it admits one
    process.
    """
    plane: str = "local"
    """The name of this control plane; part of every resource's key, so it must never change."""
    home: str = ".tenure"
    """The directory of a plane that manages agents: its store, its providers' files, its runtimes,
    and the CLI's token.  `managing` keeps its store there, whatever `store` says.
    """
    host: str = "127.0.0.1"
    port: int = 7450
    """Where the HTTP face listens."""
    issuer: str = ""
    """The origin under which the authorization server is reached; by default host and port."""
    sandbox: str = "auto"
    """Bubblewrap around local processes: `auto` where it works, `off`, or `require`."""
    traces: bool = False
    """Whether every attempt of a step is told to OpenTelemetry's tracer, as the process has it."""
    reconcile_seconds: float = 30.0
    """How often reconcilers look."""
    drift: str = "repair"
    """What is done where reality differs from the records and the agent's spec does not say:
    `repair`, or `report`.
    """
    concurrency_max: int = 2_000
    """Operations that are moved at the same time; more wait their turn as rows."""
    lease_ttl_seconds: float = 15.0
    """A worker that has not renewed its lease for so long is taken for dead."""
    collect_after: int = 200_000
    """New objects after which Python's cycle collector looks for garbage; 0 leaves Python's own."""
