"""Plane: all ports in one frozen object, the first argument of every use case."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tenure.app.agents.in_flight import InFlight
from tenure.app.events.feed import Feed
from tenure.app.operations.plane import OperationsPlane
from tenure.app.safety.pause import Pause
from tenure.app.safety.reconcile_state import ReconcileState
from tenure.app.wakeups import Wakeup
from tenure.ports.invoker import Invoker
from tenure.ports.provider import Provider
from tenure.telemetry.counters import DeliveryCounters


@dataclass(frozen=True, slots=True)
class Plane(OperationsPlane):
    """One control plane, wired: what operations need, and what the capabilities add."""

    providers: Mapping[str, Provider]
    in_flight: InFlight = field(default_factory=InFlight)
    reconcile_state: ReconcileState = field(default_factory=ReconcileState)
    deliveries: DeliveryCounters = field(default_factory=DeliveryCounters)
    commits: Wakeup = field(default_factory=Wakeup)
    """Notified of every commit of this process, if the store reports them."""
    subscription_changes: Wakeup = field(default_factory=Wakeup)
    """Notified when a subscription was made, changed or deleted here, or is to be tried again."""
    invoker: Invoker | None = None
    """Passes invocations to runtimes; None: this process passes none."""
    allow_local_webhooks: bool = False
    """Whether webhooks may lead to this very machine, for development."""
    pause: Pause = field(default_factory=Pause)
    home: str = ""
    """The name of the home with its providers; empty: the store belongs to one home only."""
    shared: bool = False
    """Whether other processes use its store too and perform plans that this one cannot."""
    provider_outage: Callable[[], str] = lambda: ""
    """Why the shared providers do not answer now, if that is known; otherwise empty."""
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "feed", Feed(self.store, self.commits))
