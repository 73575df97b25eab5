"""Plans: what an operation does, as data.

A plan is stages; a stage is one step or several that run at the same time.  Everything that makes
no sense is refused when the plan is made, with a sentence that names the step.  The order of kinds
is the saga's: steps that can be undone, at most one pivot, then steps that can only go forward.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from hashlib import blake2b
from inspect import iscoroutinefunction, isfunction
from math import isfinite
from typing import Final, NoReturn

from tenure.core.errors import Invalid
from tenure.core.limits import (
    DEFAULT_LIMITS,
    FAILURES_MAX,
    NAME_CHARACTERS_MAX,
    STEPS_MAX,
    YEARS,
    StepLimits,
)
from tenure.core.moves import Act, Move, Moves

StepFunction = Callable[..., Awaitable[object]]
"""A do, undo or inspect: takes a `tenure.ports.provider.Call`, returns or raises an ending."""

NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_NAMES: Final = (
    f"a name is a lower-case letter, then such letters, digits and _, {NAME_CHARACTERS_MAX} at most"
)


class StepKind(StrEnum):
    """What may happen to a step once it was intended."""

    COMPENSATABLE = "compensatable"
    """It can be undone."""
    PIVOT = "pivot"
    """Once intended the operation cannot be cancelled; once done it only goes forward."""
    RETRIABLE = "retriable"
    """It comes after the pivot and is retried until it is done."""


class Inquiry(StrEnum):
    """How to learn what became of a call whose reply was lost."""

    ASK = "ask"
    """Inspect by key first."""
    REPEAT = "repeat"
    """The do only reads, or is idempotent by its key: call it again."""
    NOBODY_KNOWS = "nobody_knows"
    """Neither: the step stops as unknown and waits for an operator."""


class Undo(StrEnum):
    """What stands for an undo that is no call."""

    NOTHING = "nothing"


nothing: Final = Undo.NOTHING
"""The explicit statement that a step leaves nothing to undo."""
repeat: Final = Inquiry.REPEAT
nobody_knows: Final = Inquiry.NOBODY_KNOWS


@dataclass(frozen=True, slots=True)
class Step:
    """One do/undo pair.

    Args:
        name: unique in its plan.
        do: one port call; what it sends follows from the operation's input, earlier results and its
            key, and from nothing else.
        undo: the compensation; it is idempotent and succeeds if the step never happened.  Or
            `nothing`, stated explicitly.
        inspect: what the world says of the step's key; or `repeat`, or `nobody_knows`.
        kind: compensatable, pivot or retriable.
        slot: the kind of resource it makes ("runtime"); empty for a step that makes none.
        needs: earlier steps whose results it reads.
        limits: its times.
        provider: the provider it calls, if it calls one; a plane without it does not start.
    """

    name: str
    do: StepFunction
    undo: StepFunction | Undo | None = None
    inspect: StepFunction | Inquiry | None = None
    kind: StepKind = StepKind.COMPENSATABLE
    slot: str = ""
    needs: tuple[str, ...] = ()
    limits: StepLimits = DEFAULT_LIMITS
    provider: str = ""
    inquiry: Inquiry = field(init=False, repr=False, compare=False)
    """How to learn what became of its call."""
    undoes: bool = field(init=False, repr=False, compare=False)
    """Whether its undo is a call."""

    def __post_init__(self) -> None:
        """Compute once what the saga reads at every move; an enum may be given as plain text."""
        assign = object.__setattr__
        for part, words in (("kind", StepKind), ("undo", Undo), ("inspect", Inquiry)):
            value = getattr(self, part)
            if isinstance(value, str) and value in set(words):
                assign(self, part, words(value))
        inquiry = self.inspect if isinstance(self.inspect, Inquiry) else Inquiry.ASK
        object.__setattr__(self, "inquiry", inquiry)
        object.__setattr__(self, "undoes", self.undo not in (None, Undo.NOTHING))

    def fails_on(self, attempts: object) -> bool:
        """Whether it does nothing but fail: it may wait for years, but not fail for years.

        One that can be undone is not turned back for that.
        """
        endless = self.limits.deadline_seconds >= YEARS and self.kind is not StepKind.COMPENSATABLE
        return endless and isinstance(attempts, int) and attempts >= FAILURES_MAX


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation does, as data; Invalid if it makes no sense.

    Args:
        name: lower-case letters, digits and _; a letter first.
        stages: in order; a stage is one step, or a tuple of steps that run at the same time.
        version: a changed plan needs a higher one; open operations keep the one they began with.
        subject: the kind of thing that its operations act on; empty: a lock without a meaning.
    """

    name: str
    stages: tuple[tuple[Step, ...], ...]
    version: int = 1
    subject: str = field(default="", compare=False)
    """The kind of thing that its operations act on; empty: a lock without a meaning of its own.

    It is no part of the stored body: every version of a plan has the same subject.
    """
    steps: Mapping[str, Step] = field(init=False, repr=False, compare=False)
    stage_of: Mapping[str, int] = field(init=False, repr=False, compare=False)
    names: tuple[frozenset[str], ...] = field(init=False, repr=False, compare=False)
    """The names of the steps of each stage."""
    undoable: tuple[tuple[int, Step], ...] = field(init=False, repr=False, compare=False)
    """Every compensatable step with its stage, newest stage first."""
    pivot_stage: int = field(init=False, repr=False, compare=False)
    """The first stage from which there is no way back; beyond the last if there is none."""
    parallel: bool = field(init=False, repr=False, compare=False)
    """Whether some stage has several steps."""
    alone: tuple[Moves | None, ...] = field(init=False, repr=False, compare=False)
    """To do the one step of a stage, for each stage that has one."""
    back: tuple[Moves | None, ...] = field(init=False, repr=False, compare=False)
    """To undo it, if that is a call."""
    digest: str = field(init=False, repr=False, compare=False)
    _body: str = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        name: str,
        *,
        stages: Iterable[Step | Sequence[Step]],
        version: int = 1,
        subject: str = "",
    ) -> None:
        """Normalise the stages and refuse nonsense."""
        if isinstance(stages, Step):
            _no(f"plan {name}: stages are several; write stages=(step,) for one")
        tidy = tuple((s,) if isinstance(s, Step) else tuple(s) for s in stages)
        if not all(isinstance(step, Step) for stage in tidy for step in stage):
            _no(f"plan {name}: a stage is a Step, or several in a tuple, and nothing else")
        if type(version) is not int:
            _no(f"plan {name}: a version is a whole number, not {version!r}")
        assign = object.__setattr__
        assign(self, "name", name)
        assign(self, "stages", tidy)
        assign(self, "version", version)
        assign(self, "subject", subject)
        _refuse_nonsense(self)
        assign(self, "steps", {step.name: step for stage in tidy for step in stage})
        stage_of = {step.name: n for n, stage in enumerate(tidy) for step in stage}
        assign(self, "stage_of", stage_of)
        assign(self, "names", tuple(frozenset(step.name for step in stage) for stage in tidy))
        staged = [(n, step) for n, stage in reversed([*enumerate(tidy)]) for step in stage]
        undoable = tuple((n, step) for n, step in staged if step.kind is StepKind.COMPENSATABLE)
        assign(self, "undoable", undoable)
        forward = [
            n for n, (step, *_) in enumerate(tidy) if step.kind is not StepKind.COMPENSATABLE
        ]
        assign(self, "pivot_stage", min(forward, default=len(tidy)))
        assign(self, "parallel", any(len(stage) > 1 for stage in tidy))
        assign(self, "alone", tuple(_alone(Act.DO, stage) for stage in tidy))
        undo = [_alone(Act.UNDO, stage) if stage[0].undoes else None for stage in tidy]
        assign(self, "back", tuple(undo))
        assign(self, "_body", self._encode())
        assign(self, "digest", blake2b(self._body.encode(), digest_size=16).hexdigest())

    def body(self) -> str:
        """The plan as canonical JSON, as operations store it.  Functions are only named."""
        return self._body

    def _encode(self) -> str:
        stages = [
            [
                {
                    "name": step.name,
                    "kind": step.kind,
                    "slot": step.slot,
                    "undo": "call" if step.undoes else (step.undo or ""),
                    "inspect": step.inquiry,
                    "needs": list(step.needs),
                    "limits": {k: float(v) for k, v in asdict(step.limits).items()},
                }
                for step in stage
            ]
            for stage in self.stages
        ]
        whole = {"name": self.name, "version": self.version, "stages": stages}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"))


def _alone(act: Act, stage: tuple[Step, ...]) -> Moves | None:
    return Moves((Move(act, stage[0]),), None) if len(stage) == 1 else None


def plan_from_body(body: str, find: Callable[[str, int, str], Step | None]) -> Plan:
    """The plan of a stored body, with its functions looked up as plan@version/step."""
    whole = json.loads(body)
    name, version = whole["name"], whole["version"]
    stages: list[list[Step]] = []
    for stage in whole["stages"]:
        steps: list[Step] = []
        for stored in stage:
            known = find(name, version, stored["name"])
            if known is None or not _can_perform(known, stored):
                _no(f"nobody here knows how to perform {name}@{version}/{stored['name']}")
            undo = {"call": known.undo, "nothing": nothing, "": None}[stored["undo"]]
            asks = stored["inspect"] == Inquiry.ASK
            steps.append(
                Step(
                    stored["name"],
                    do=known.do,
                    undo=undo,
                    inspect=known.inspect if asks else Inquiry(stored["inspect"]),
                    kind=StepKind(stored["kind"]),
                    slot=stored["slot"],
                    needs=tuple(stored["needs"]),
                    limits=StepLimits(**stored["limits"]),
                )
            )
        stages.append(steps)
    return Plan(name, stages=stages, version=version)


def missing_from(body: str, find: Callable[[str, int, str], Step | None]) -> list[str]:
    """Every plan@version/step of a stored plan that cannot be performed here."""
    whole = json.loads(body)
    name, version = whole["name"], whole["version"]
    missing: list[str] = []
    for stored in (step for stage in whole["stages"] for step in stage):
        known = find(name, version, stored["name"])
        if known is None or not _can_perform(known, stored):
            missing.append(f"{name}@{version}/{stored['name']}")
    return missing


def _can_perform(known: Step, stored: Mapping[str, object]) -> bool:
    """Whether the step has every function that the stored one names; a missing undo would leak."""
    undo = known.undoes or stored["undo"] != "call"
    return undo and (known.inquiry is Inquiry.ASK or stored["inspect"] != Inquiry.ASK)


def _refuse_nonsense(plan: Plan) -> None:
    steps = [step for stage in plan.stages for step in stage]
    if not NAME.fullmatch(plan.name) or len(plan.name) > NAME_CHARACTERS_MAX:
        _no(f"plan {plan.name!r}: {_NAMES}")
    if plan.version < 1:
        _no(f"plan {plan.name}: versions count from 1, not {plan.version}")
    if not steps or not all(plan.stages):
        _no(f"plan {plan.name}: it has no steps, or a stage without any")
    if len(steps) > STEPS_MAX:
        _no(f"plan {plan.name}: {len(steps)} steps; at most {STEPS_MAX} are allowed")
    seen: set[str] = set()
    for step in steps:
        if not NAME.fullmatch(step.name) or len(step.name) > NAME_CHARACTERS_MAX:
            _no(f"plan {plan.name}: step {step.name!r}: {_NAMES}")
        if step.name in seen:
            _no(f"plan {plan.name}: two steps are called {step.name}; names are unique in a plan")
        seen.add(step.name)
        _refuse_step(plan, step)
    _refuse_order(plan)
    _refuse_needs(plan)


def _refuse_step(plan: Plan, step: Step) -> None:
    where = f"plan {plan.name}: step {step.name}"
    if not isinstance(step.kind, StepKind):
        _no(f"{where}: there is no kind {step.kind!r}; say {', '.join(StepKind)}")
    if not callable(step.do):
        _no(f"{where}: its do must be an async function, not {step.do!r}")
    if step.undo is not None and not isinstance(step.undo, Undo) and not callable(step.undo):
        _no(f"{where}: its undo must be an async function or `nothing`, not {step.undo!r}")
    if not isinstance(step.inspect, Inquiry | None) and not callable(step.inspect):
        _no(f"{where}: its inspect must be an async function, `repeat` or `nobody_knows`")
    for name, function in (("do", step.do), ("undo", step.undo), ("inspect", step.inspect)):
        if isfunction(function) and not iscoroutinefunction(function):
            _no(f"{where}: its {name} is no async function; write it with `async def`")
    if not isinstance(step.limits, StepLimits):
        _no(f"{where}: its limits must be a StepLimits, not {step.limits!r}")
    if step.kind is StepKind.COMPENSATABLE and step.undo is None:
        _no(f"{where} declares no undo; give it one, or say undo=nothing")
    if step.kind is not StepKind.COMPENSATABLE and step.undo is not None:
        _no(f"{where} is {step.kind} and declares an undo that would never run; leave it out")
    if step.inspect is None or step.inspect is Inquiry.ASK:
        _no(
            f"{where} does not say how to learn what became of a lost call; "
            "give it an inspect, or say inspect=repeat or inspect=nobody_knows"
        )
    if step.slot and (not NAME.fullmatch(step.slot) or len(step.slot) > NAME_CHARACTERS_MAX):
        _no(f"{where}: slot {step.slot!r}: {_NAMES}")
    for name, seconds in asdict(step.limits).items():
        zero = seconds == 0 and name == "visible_seconds"
        if not zero and not (isfinite(seconds) and seconds > 0):
            _no(f"{where}: {name} must be a time above zero, not {seconds}")


def _refuse_order(plan: Plan) -> None:
    pivot = ""
    kinds = {step.kind for stage in plan.stages for step in stage}
    for stage in plan.stages:
        for step in stage:
            where = f"plan {plan.name}: step {step.name}"
            if step.kind is StepKind.PIVOT:
                beside = [other.name for other in stage if other is not step]
                if beside:
                    _no(f"{where} is a pivot beside {beside[0]} in one stage; a pivot stands alone")
                if pivot:
                    _no(f"{where} is a second pivot after {pivot}; a plan has at most one")
                pivot = step.name
            elif step.kind is StepKind.COMPENSATABLE and pivot:
                _no(f"{where} is compensatable after the pivot {pivot}, where nothing is undone")
            elif step.kind is StepKind.RETRIABLE and not pivot and len(kinds) > 1:
                _no(f"{where} is retriable before any pivot, so nothing could undo or pass it")


def _refuse_needs(plan: Plan) -> None:
    stage_of = {step.name: n for n, stage in enumerate(plan.stages) for step in stage}
    needs = {step.name: step.needs for stage in plan.stages for step in stage}
    for name, others in needs.items():
        for other in others:
            where = f"plan {plan.name}: step {name} needs {other}"
            if other not in stage_of:
                _no(f"{where}, which is no step of this plan")
            if name == other or _reaches(needs, other, name):
                _no(f"{where}, which needs {name}: a cycle")
            if stage_of[other] >= stage_of[name]:
                _no(f"{where}, which does not come before it")


def _reaches(needs: Mapping[str, tuple[str, ...]], start: str, goal: str) -> bool:
    seen, todo = {start}, [start]
    while todo:
        for other in needs.get(todo.pop(), ()):
            if other == goal:
                return True
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return False


def _no(sentence: str) -> NoReturn:
    raise Invalid(sentence)
