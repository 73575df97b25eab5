"""Every subject of the harness, by name: the one list that commands and tests read."""

from collections.abc import Mapping

from proofs.agents.promises import SUBJECT as AGENTS
from proofs.events.promises import SUBJECT as EVENTS
from proofs.harness.ablation import by_name
from proofs.harness.simulation import Simulation
from proofs.harness.subject import Subject
from proofs.http.flood import SUBJECT as HTTP
from proofs.operations.promises import SUBJECT as OPERATIONS
from proofs.reconcilers.promises import SUBJECT as RECONCILERS
from proofs.releases.upgrades import SUBJECT as RELEASES

SUBJECTS: Mapping[str, Subject] = {
    subject.name: subject for subject in (OPERATIONS, AGENTS, EVENTS, RECONCILERS, HTTP, RELEASES)
}
SIMULATIONS: Mapping[str, type[Simulation]] = {
    name: subject.simulation for name, subject in SUBJECTS.items() if subject.simulation
}
ABLATIONS = by_name(
    ablation for subject in SUBJECTS.values() for ablation in subject.ablations.values()
)
"""Every safeguard that can be switched off, by name."""
