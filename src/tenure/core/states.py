"""State machines: each is a table of rows (from, trigger, to).

Code that changes a state looks the new state up in the table; a transition without a row raises
`IllegalTransition`.  The diagrams in the docs are made from the rows, and the CHECK constraints in
SQL list the same states.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tenure.core.errors import IllegalTransition


@dataclass(frozen=True, slots=True)
class StateMachine:
    """One state machine: its name, its start, its final states and its transitions."""

    name: str
    start: StrEnum
    final: frozenset[StrEnum]
    rows: tuple[tuple[StrEnum, StrEnum, StrEnum], ...]
    _after: dict[tuple[StrEnum, StrEnum], StrEnum] = field(init=False, repr=False, compare=False)
    _pairs: frozenset[tuple[StrEnum, StrEnum]] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        name: str,
        *,
        start: StrEnum,
        final: Iterable[StrEnum],
        rows: Iterable[tuple[StrEnum, StrEnum, StrEnum]],
    ) -> None:
        """ValueError if a (state, trigger) has two rows, or a final state has one."""
        rows, final = tuple(rows), frozenset(final)
        after: dict[tuple[StrEnum, StrEnum], StrEnum] = {}
        for old, trigger, new in rows:
            if (old, trigger) in after:
                message = f"{name}: two rows for ({old}, {trigger})"
                raise ValueError(message)
            after[old, trigger] = new
        exits = [old for old, _, _ in rows if old in final]
        if exits:
            message = f"{name}: {exits[0]} is final and has an exit"
            raise ValueError(message)
        assign = object.__setattr__
        assign(self, "name", name)
        assign(self, "start", start)
        assign(self, "final", final)
        assign(self, "rows", rows)
        assign(self, "_after", after)
        assign(self, "_pairs", frozenset((old, new) for old, _, new in rows))

    def after(self, state: StrEnum, trigger: StrEnum) -> StrEnum:
        """The state that `trigger` leads to, or IllegalTransition."""
        try:
            return self._after[state, trigger]
        except KeyError:
            message = f"{self.name}: {state} has no transition by {trigger}"
            raise IllegalTransition(message) from None

    def permits(self, old: StrEnum, new: StrEnum) -> bool:
        """Whether some row leads from `old` to `new`; an unchanged state is permitted."""
        return old is new or (old, new) in self._pairs

    def states(self) -> tuple[StrEnum, ...]:
        """Every state, in the order in which the rows first name it."""
        seen: dict[StrEnum, None] = {self.start: None}
        for old, _, new in self.rows:
            seen.setdefault(old)
            seen.setdefault(new)
        return tuple(seen)

    def diagram(self) -> str:
        """The table as a Mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.start}"]
        lines += [f"    {old} --> {new}: {trigger}" for old, trigger, new in self.rows]
        lines += [f"    {state} --> [*]" for state in self.states() if state in self.final]
        return "\n".join(lines)
