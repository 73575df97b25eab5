"""The promise about events: every committed one gets out (P17)."""

from proofs.events.ablations import ABLATIONS
from proofs.events.profiles import SEEDS
from proofs.events.workload import EventsSimulation
from proofs.harness.subject import Proof, Subject

SUBJECT = Subject(
    "events",
    (Proof(17, ("relay_dies", "receiver_refuses")),),
    ABLATIONS,
    EventsSimulation,
    seeds=SEEDS,
)
