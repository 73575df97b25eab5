"""Plans: the steps of an operation, as data that is stored with it.

A plan has stages in order.  A stage is one step, or several that run at the same time.  A plan that
is not consistent is refused when it is made, with a message that names the step.  The kinds of its
steps come in this order: steps that can be undone, at most one pivot, then steps that are only
retried.
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
    NO_DEADLINE_SECONDS,
    STEPS_MAX,
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
    """Whether a step can be undone."""

    COMPENSATABLE = "compensatable"
    """It can be undone."""
    PIVOT = "pivot"
    """Once intended the operation cannot be cancelled; once done it only goes forward."""
    RETRIABLE = "retriable"
    """It comes after the pivot and is retried until it is done."""


class OutcomeCheck(StrEnum):
    """How to find out the outcome of a call whose reply was lost."""

    INSPECT = "ask"
    """Inspect by key first; the stored word is `ask`."""
    REPEAT = "repeat"
    """The do only reads, or is idempotent by its key: call it again."""
    NOBODY_KNOWS = "nobody_knows"
    """It cannot be found out: the step becomes STUCK and waits for an operator."""


class Undo(StrEnum):
    """The value of `undo` for a step that needs none."""

    NOTHING = "nothing"


nothing: Final = Undo.NOTHING
"""Declares that a step leaves nothing to undo."""
repeat: Final = OutcomeCheck.REPEAT
nobody_knows: Final = OutcomeCheck.NOBODY_KNOWS


@dataclass(frozen=True, slots=True)
class Step:
    """One do/undo pair.

    Args:
        name: unique in its plan.
        do: makes one call; the arguments of that call depend only on the operation's input, the
            results of earlier steps and the step's key.
        undo: the compensation; it is idempotent and succeeds if the step never happened.  Or
            `nothing`, stated explicitly.
        inspect: finds out by the step's key whether it was done; or `repeat`, or `nobody_knows`.
        kind: compensatable, pivot or retriable.
        slot: the kind of resource it makes ("runtime"); empty for a step that makes none.
        needs: earlier steps whose results it reads.
        limits: its time limits.
        provider: the name of the provider it calls, if any; a plane without it does not start.
    """

    name: str
    do: StepFunction
    undo: StepFunction | Undo | None = None
    inspect: StepFunction | OutcomeCheck | None = None
    kind: StepKind = StepKind.COMPENSATABLE
    slot: str = ""
    needs: tuple[str, ...] = ()
    limits: StepLimits = DEFAULT_LIMITS
    provider: str = ""
    outcome_check: OutcomeCheck = field(init=False, repr=False, compare=False)
    """How to find out the outcome of a lost call of it."""
    has_undo: bool = field(init=False, repr=False, compare=False)
    """Whether its undo is a function, and not `nothing`."""

    def __post_init__(self) -> None:
        """Compute the derived fields; an enum may be given as its text."""
        assign = object.__setattr__
        for part, words in (("kind", StepKind), ("undo", Undo), ("inspect", OutcomeCheck)):
            value = getattr(self, part)
            if isinstance(value, str) and value in set(words):
                assign(self, part, words(value))
        outcome_check = (
            self.inspect if isinstance(self.inspect, OutcomeCheck) else OutcomeCheck.INSPECT
        )
        object.__setattr__(self, "outcome_check", outcome_check)
        object.__setattr__(self, "has_undo", self.undo not in (None, Undo.NOTHING))

    def keeps_failing(self, attempts: object) -> bool:
        """Whether a step without a deadline has failed so often that it becomes STUCK.

        Waiting does not count as a failure.  A compensatable step is retried without a limit.
        """
        endless = (
            self.limits.deadline_seconds >= NO_DEADLINE_SECONDS
            and self.kind is not StepKind.COMPENSATABLE
        )
        return endless and isinstance(attempts, int) and attempts >= FAILURES_MAX


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an operation, as data; Invalid if they are not consistent.

    Args:
        name: lower-case letters, digits and _; a letter first.
        stages: in order; a stage is one step, or a tuple of steps that run at the same time.
        version: a changed plan needs a higher version; open operations keep the version with which
            they were accepted.
        subject: the kind of thing that its operations act on, such as "agent"; empty: they only
            lock a row.
    """

    name: str
    stages: tuple[tuple[Step, ...], ...]
    version: int = 1
    subject: str = field(default="", compare=False)
    """The kind of thing that its operations act on; empty: they only lock a row.

    It is not part of the stored body: every version of a plan has the same subject.
    """
    steps: Mapping[str, Step] = field(init=False, repr=False, compare=False)
    stage_of: Mapping[str, int] = field(init=False, repr=False, compare=False)
    stage_names: tuple[frozenset[str], ...] = field(init=False, repr=False, compare=False)
    """The names of the steps of each stage."""
    undoable: tuple[tuple[int, Step], ...] = field(init=False, repr=False, compare=False)
    """Every compensatable step with its stage, newest stage first."""
    pivot_stage: int = field(init=False, repr=False, compare=False)
    """The first stage with a step that cannot be undone; the number of stages if there is none."""
    parallel: bool = field(init=False, repr=False, compare=False)
    """Whether some stage has several steps."""
    single_do: tuple[Moves | None, ...] = field(init=False, repr=False, compare=False)
    """For each stage with exactly one step, the move that does it; None for other stages."""
    single_undo: tuple[Moves | None, ...] = field(init=False, repr=False, compare=False)
    """For each stage with exactly one step, the move that undoes it; None if it has no undo."""
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
        """Normalise the stages; Invalid if the plan is not consistent."""
        if isinstance(stages, Step):
            _refuse(f"plan {name}: stages must be a tuple; write stages=(step,) for one")
        stage_tuples = tuple((s,) if isinstance(s, Step) else tuple(s) for s in stages)
        if not all(isinstance(step, Step) for stage in stage_tuples for step in stage):
            _refuse(f"plan {name}: a stage is a Step, or several in a tuple, and nothing else")
        if type(version) is not int:
            _refuse(f"plan {name}: a version is a whole number, not {version!r}")
        assign = object.__setattr__
        assign(self, "name", name)
        assign(self, "stages", stage_tuples)
        assign(self, "version", version)
        assign(self, "subject", subject)
        _validate(self)
        assign(self, "steps", {step.name: step for stage in stage_tuples for step in stage})
        stage_of = {step.name: n for n, stage in enumerate(stage_tuples) for step in stage}
        assign(self, "stage_of", stage_of)
        assign(
            self,
            "stage_names",
            tuple(frozenset(step.name for step in stage) for stage in stage_tuples),
        )
        staged = [(n, step) for n, stage in reversed([*enumerate(stage_tuples)]) for step in stage]
        undoable = tuple((n, step) for n, step in staged if step.kind is StepKind.COMPENSATABLE)
        assign(self, "undoable", undoable)
        forward = [
            n
            for n, (step, *_) in enumerate(stage_tuples)
            if step.kind is not StepKind.COMPENSATABLE
        ]
        assign(self, "pivot_stage", min(forward, default=len(stage_tuples)))
        assign(self, "parallel", any(len(stage) > 1 for stage in stage_tuples))
        assign(self, "single_do", tuple(_single_move(Act.DO, stage) for stage in stage_tuples))
        undo = [
            _single_move(Act.UNDO, stage) if stage[0].has_undo else None for stage in stage_tuples
        ]
        assign(self, "single_undo", tuple(undo))
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
                    "undo": "call" if step.has_undo else (step.undo or ""),
                    "inspect": step.outcome_check,
                    "needs": list(step.needs),
                    "limits": {k: float(v) for k, v in asdict(step.limits).items()},
                }
                for step in stage
            ]
            for stage in self.stages
        ]
        whole = {"name": self.name, "version": self.version, "stages": stages}
        return json.dumps(whole, sort_keys=True, separators=(",", ":"))


def _single_move(act: Act, stage: tuple[Step, ...]) -> Moves | None:
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
                _refuse(f"nobody here knows how to perform {name}@{version}/{stored['name']}")
            undo = {"call": known.undo, "nothing": nothing, "": None}[stored["undo"]]
            asks = stored["inspect"] == OutcomeCheck.INSPECT
            steps.append(
                Step(
                    stored["name"],
                    do=known.do,
                    undo=undo,
                    inspect=known.inspect if asks else OutcomeCheck(stored["inspect"]),
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
    """Whether the known step has every function that the stored step needs."""
    has_undo = known.has_undo or stored["undo"] != "call"
    return has_undo and (
        known.outcome_check is OutcomeCheck.INSPECT or stored["inspect"] != OutcomeCheck.INSPECT
    )


def _validate(plan: Plan) -> None:
    steps = [step for stage in plan.stages for step in stage]
    if not NAME.fullmatch(plan.name) or len(plan.name) > NAME_CHARACTERS_MAX:
        _refuse(f"plan {plan.name!r}: {_NAMES}")
    if plan.version < 1:
        _refuse(f"plan {plan.name}: versions count from 1, not {plan.version}")
    if not steps or not all(plan.stages):
        _refuse(f"plan {plan.name}: it has no steps, or a stage without any")
    if len(steps) > STEPS_MAX:
        _refuse(f"plan {plan.name}: {len(steps)} steps; at most {STEPS_MAX} are allowed")
    seen: set[str] = set()
    for step in steps:
        if not NAME.fullmatch(step.name) or len(step.name) > NAME_CHARACTERS_MAX:
            _refuse(f"plan {plan.name}: step {step.name!r}: {_NAMES}")
        if step.name in seen:
            _refuse(
                f"plan {plan.name}: two steps are called {step.name}; names are unique in a plan"
            )
        seen.add(step.name)
        _validate_step(plan, step)
    _validate_order(plan)
    _validate_needs(plan)


def _validate_step(plan: Plan, step: Step) -> None:
    where = f"plan {plan.name}: step {step.name}"
    if not isinstance(step.kind, StepKind):
        _refuse(f"{where}: there is no kind {step.kind!r}; say {', '.join(StepKind)}")
    if not callable(step.do):
        _refuse(f"{where}: its do must be an async function, not {step.do!r}")
    if step.undo is not None and not isinstance(step.undo, Undo) and not callable(step.undo):
        _refuse(f"{where}: its undo must be an async function or `nothing`, not {step.undo!r}")
    if not isinstance(step.inspect, OutcomeCheck | None) and not callable(step.inspect):
        _refuse(f"{where}: its inspect must be an async function, `repeat` or `nobody_knows`")
    for name, function in (("do", step.do), ("undo", step.undo), ("inspect", step.inspect)):
        if isfunction(function) and not iscoroutinefunction(function):
            _refuse(f"{where}: its {name} is no async function; write it with `async def`")
    if not isinstance(step.limits, StepLimits):
        _refuse(f"{where}: its limits must be a StepLimits, not {step.limits!r}")
    if step.kind is StepKind.COMPENSATABLE and step.undo is None:
        _refuse(f"{where} declares no undo; give it one, or say undo=nothing")
    if step.kind is not StepKind.COMPENSATABLE and step.undo is not None:
        _refuse(f"{where} is {step.kind} and declares an undo that would never run; leave it out")
    if step.inspect is None or step.inspect is OutcomeCheck.INSPECT:
        _refuse(
            f"{where} does not say how to learn what became of a lost call; "
            "give it an inspect, or say inspect=repeat or inspect=nobody_knows"
        )
    if step.slot and (not NAME.fullmatch(step.slot) or len(step.slot) > NAME_CHARACTERS_MAX):
        _refuse(f"{where}: slot {step.slot!r}: {_NAMES}")
    for name, seconds in asdict(step.limits).items():
        zero = seconds == 0 and name == "visible_seconds"
        if not zero and not (isfinite(seconds) and seconds > 0):
            _refuse(f"{where}: {name} must be a time above zero, not {seconds}")


def _validate_order(plan: Plan) -> None:
    pivot = ""
    kinds = {step.kind for stage in plan.stages for step in stage}
    for stage in plan.stages:
        for step in stage:
            where = f"plan {plan.name}: step {step.name}"
            if step.kind is StepKind.PIVOT:
                beside = [other.name for other in stage if other is not step]
                if beside:
                    _refuse(
                        f"{where} is a pivot beside {beside[0]} in one stage; a pivot stands alone"
                    )
                if pivot:
                    _refuse(f"{where} is a second pivot after {pivot}; a plan has at most one")
                pivot = step.name
            elif step.kind is StepKind.COMPENSATABLE and pivot:
                _refuse(
                    f"{where} is compensatable after the pivot {pivot}, where nothing is undone"
                )
            elif step.kind is StepKind.RETRIABLE and not pivot and len(kinds) > 1:
                _refuse(f"{where} is retriable before any pivot, so nothing could undo or pass it")


def _validate_needs(plan: Plan) -> None:
    stage_of = {step.name: n for n, stage in enumerate(plan.stages) for step in stage}
    needs = {step.name: step.needs for stage in plan.stages for step in stage}
    for name, others in needs.items():
        for other in others:
            where = f"plan {plan.name}: step {name} needs {other}"
            if other not in stage_of:
                _refuse(f"{where}, which is no step of this plan")
            if name == other or _reaches(needs, other, name):
                _refuse(f"{where}, which needs {name}: a cycle")
            if stage_of[other] >= stage_of[name]:
                _refuse(f"{where}, which does not come before it")


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


def _refuse(sentence: str) -> NoReturn:
    raise Invalid(sentence)
