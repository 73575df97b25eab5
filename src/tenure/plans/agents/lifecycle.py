"""Every verb of the agent lifecycle: its declaration and its plan."""

from collections.abc import Mapping
from typing import Final

from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import create, delete, recover, resume, stop, suspend

_MODULES = (create, suspend, stop, resume, delete, recover)
PLANS: Final = tuple(module.PLAN for module in _MODULES)
VERBS: Final[Mapping[str, LifecycleVerb]] = {module.VERB.name: module.VERB for module in _MODULES}
"""By the name of the plan."""
CLOSING: Final = frozenset(name for name, verb in VERBS.items() if verb.closes)
WAITED_FOR: Final = {name: verb.waits_for for name, verb in VERBS.items() if verb.waits_for}
"""The event whose required subscribers an operation waits for, by the name of its plan."""
