"""A world without time, threads or I/O in which an operation lives its whole life.

Goal: drive `next_moves` → `decide_outcome` → `after` through every kind of trouble, and look at
what was done to the world, not at what the journal says of it.  Method: a tape of bytes decides
each answer, crash, cancel, signal and operator's word; a tape that has run out means a healthy
world, so every life must end, and Hypothesis shrinks the tape.  Before every move and after every
record the promises are checked.
"""

from collections import Counter
from random import Random

from hypothesis import strategies as st

from proofs.operations.journals import progress_after
from tenure.core import saga
from tenure.core.endings import Absent, Done, Ending, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import StepLimits
from tenure.core.moves import NO_MOVES, Act, Move
from tenure.core.operation import (
    INTENT,
    OPERATION,
    EntryKind,
    Intent,
    IntentState,
    IntentTrigger,
    JournalEntry,
    OperationState,
)
from tenure.core.plan import OutcomeCheck, Plan, Step, StepKind, nobody_knows, nothing, repeat

LIMITS = StepLimits(deadline_seconds=60.0, undo_seconds=60.0, retry_cap_seconds=8.0)
SLOW = StepLimits(
    deadline_seconds=60.0, undo_seconds=60.0, retry_cap_seconds=8.0, visible_seconds=5.0
)
STEPS_MAX = 2_000
"""No life is longer: a tape is short, and a healthy world is soon done."""


async def call(_: object) -> None:
    """Stands for every do, undo and inspect: nothing here is awaited."""


def step(name, *, undo=call, inspect=call, kind=StepKind.COMPENSATABLE, limits=LIMITS):
    if kind is not StepKind.COMPENSATABLE:
        undo = None
    return Step(name, do=call, undo=undo, inspect=inspect, kind=kind, limits=limits)


def plan_of(shape):
    """Any plan that makes sense, of up to eleven steps; no shape at all gives a single step."""
    words = iter(shape)

    def choose(n):
        return next(words, 0) % n

    def stage(kind, size):
        made = []
        for _ in range(size):
            undo = nothing if choose(3) == 2 else call
            inspect = (call, call, repeat, nobody_knows)[choose(4)]
            limits = (LIMITS, SLOW)[choose(2)]
            name = f"s{next(numbers)}"
            made.append(step(name, undo=undo, inspect=inspect, kind=kind, limits=limits))
        return made

    numbers = iter(range(99))
    before, pivot, after = choose(4), choose(2), choose(3)
    stages = [stage(StepKind.COMPENSATABLE, 1 + choose(2)) for _ in range(before)]
    stages += [stage(StepKind.PIVOT, 1)] * pivot
    if pivot or not before:
        stages += [stage(StepKind.RETRIABLE, 1 + choose(2)) for _ in range(after)]
    return Plan("life", stages=stages or [stage(StepKind.COMPENSATABLE, 1)])


plans = st.binary(max_size=30).map(plan_of)
tapes = st.binary(max_size=60)


def some_life(seed):
    """The life of this seed: longer and fuller of trouble than what Hypothesis starts with."""
    lots = Random(seed)
    return Life(plan_of(lots.randbytes(30)), lots.randbytes(lots.choice((10, 40, 120))))


class Out:
    """A call that is under way."""

    def __init__(self, move, started_at, signals):
        self.move = move
        self.started_at = started_at
        self.signals = signals


class Life:
    """One operation, its providers, its worker, its caller and its operator."""

    def __init__(self, plan, tape):
        self.plan = plan
        self.tape = iter(tape)
        self.now = 1_000.0
        self.journal = [JournalEntry(1, EntryKind.ACCEPTED, "", self.now, {})]
        self.progress = progress_after(plan, self.journal)
        self.intents: dict[str, Intent] = {}
        self.state = OperationState.RUNNING
        self.out: list[Out] = []
        self.held: dict[str, float] = {}  # what the providers hold, and since when
        self.doubts: dict[str, float] = {}  # steps a call of which may be out, and since when
        self.given: dict[str, int] = {}  # signals that a step's last call has seen
        self.endings: Counter[str] = Counter()
        self._intend(0)

    def choose(self, n):
        """The tape's next word, 0 to n - 1; 0 is what happens in a healthy world."""
        return next(self.tape, 0) % n

    # --- the worker -------------------------------------------------------------------------------

    def run(self):
        """Live to the end; the moves in between are counted so that no life goes on for ever."""
        for _ in range(STEPS_MAX):
            if self.progress.end is not None:
                return
            if not self.meddle():
                self.move_on()
        raise AssertionError(f"no end in sight: {self.state}, {self.journal[-5:]}")

    def move_on(self):
        moves = saga.next_moves(self.plan, self.progress, self.intents, self.now)
        for move in moves.due:
            self.begin(move)
        if self.out:
            self.end(self.out.pop(self.choose(len(self.out))))
        elif not moves.due:
            self.rest(moves.wake_at)

    def begin(self, move):
        name = move.step.name
        intent = self.intents[name]
        self.check_move(move)
        intent.busy = True
        if move.act is Act.DO and intent.unknown_since is None:
            intent.unknown_since = self.now
        self.out.append(Out(move, self.now, self.progress.signals))

    def end(self, out):
        """The call ends, sooner or later."""
        self.now += (0.0, 0.5, 40.0)[self.choose(3)]
        name = out.move.step.name
        calls = {Act.DO: self.do, Act.INSPECT: self.inspect, Act.UNDO: self.undo}
        if out.move.act in calls:
            ending = calls[out.move.act](name, out)
            self.endings[type(ending).__name__] += 1
        else:
            ending = Done()  # a decision, and nothing is called
        self.record(out, ending)
        self.intents[name].busy = False

    def record(self, out, ending):
        move, name = out.move, out.move.step.name
        if not saga.is_relevant(self.progress, move, ending):
            if move.act is Act.DO and isinstance(ending, NotYet | Waiting):
                self.doubts[name] = self.now  # it is under way, and nobody will look at it again
            return
        overdue = out.started_at >= saga.deadline_of(self.progress, move.step)
        outcome = saga.decide_outcome(
            self.progress,
            self.intents[name],
            move,
            ending,
            started_at=out.started_at,
            now=self.now,
            jitter=0.5,
            signals=out.signals,
        )
        if outcome.entry is None:
            assert not isinstance(ending, Done), "what is done is recorded"
            self.set(name, outcome.intent)
            self.state = self.journal_state()
            return
        kind, body = outcome.entry
        if move.act in (Act.DO, Act.INSPECT) and isinstance(ending, NotYet | Waiting | Unavailable):
            late = self.progress.compensating_at is not None
            assert overdue or late, "a poll adds no record"
        if move.act is Act.DECLARE_STUCK:
            back = self.progress.compensating_at is not None
            assert not (back and move.step.has_undo), "what can be undone is not given up"
        if kind is EntryKind.COMPENSATING:
            assert overdue, "only a look later than the deadline turns back"
        self.note(kind, name, body, outcome.intent)

    def note(self, kind, name, body, columns=None):
        """One more record, and all that follows from it, as the app would write it."""
        before = self.progress
        record = JournalEntry(len(self.journal) + 1, kind, name, self.now, body)
        self.progress = saga.after(self.plan, before, record)
        self.journal.append(record)
        turned = self.progress.compensating_at is not None and before.compensating_at is None
        covered = [n for n in self.intents if turned and self.plan.steps[n].has_undo]
        if columns and name not in covered:
            self.set(name, columns)
        for other in covered:
            state = INTENT.after(self.intents[other].state, IntentTrigger.COMPENSATION_STARTED)
            self.set(other, {"state": state, "due_at": 0.0, "attempts": 0, "waiting_on": None})
        if self.progress.end is None and self.progress.stage > before.stage:
            self._intend(self.progress.stage)
        state = self.journal_state()
        assert OPERATION.permits(self.state, state), f"{self.state} to {state} by {kind}"
        self.state = state
        self.check_record(before, record)

    def journal_state(self):
        return saga.state_of(self.plan, self.progress, self.intents)

    def set(self, name, columns):
        for column, value in columns.items():
            setattr(self.intents[name], column, value)

    def _intend(self, stage):
        for one in self.plan.stages[stage]:
            self.intents[one.name] = Intent(one.name, "", one.name)

    # --- the providers ----------------------------------------------------------------------------

    def do(self, name, out):
        self.given[name] = sum(map(len, out.signals.values()))
        word = self.choose(8)
        if word in (0, 1):
            self.held.setdefault(name, self.now)
            return Done({"by": name})
        if word == 2:
            self.held.setdefault(name, self.now)
            return NotYet(3.0)
        if word == 3:
            return Waiting("go")
        if word == 4 and name not in self.held:
            return Rejected("no")
        if word == 5 and name not in self.held:
            return Unavailable("later")
        if word == 6:
            self.held.setdefault(name, self.now)
        self.doubts[name] = self.now
        return OutcomeUnknown("lost")

    def inspect(self, name, out):
        word = self.choose(6)
        limits = self.plan.steps[name].limits
        if word == 4:
            return Unavailable("later")
        if word == 5:
            return OutcomeUnknown("lost")
        held_since = self.held.get(name)
        hidden = held_since is not None and self.now < held_since + limits.visible_seconds
        if held_since is None or (hidden and word == 1):
            if held_since is None and word == 3:
                return Rejected("someone else's")
            if out.started_at >= self.doubts.get(name, 0.0) + limits.visible_seconds:
                self.doubts.pop(name, None)
            return Absent()
        self.doubts.pop(name, None)
        return NotYet(2.0) if word == 2 else Done({"by": name})

    def undo(self, name, _):
        word = self.choose(7)
        if word in (0, 1, 2):
            self.held.pop(name, None)
            return OutcomeUnknown("lost") if word == 2 else Done()
        answers: tuple[Ending, ...] = (
            Rejected("no"),
            Unavailable("later"),
            NotYet(3.0),
            Waiting("go"),
        )
        return answers[word - 3]

    # --- everybody else ---------------------------------------------------------------------------

    def meddle(self):
        """Whether someone comes between: a crash, a cancel, a signal, an operator."""
        word = self.choose(16)
        if word == 1:
            return self.crash()
        if word == 2 and self.progress.compensating_at is None:
            return self.cancel()
        if word == 3:
            self.note(EntryKind.SIGNALLED, "", {"signal": "go", "payload": len(self.journal)})
            return True
        if word == 4 and self.progress.stuck:
            return self.operate(self.choose(4))
        return False

    def crash(self):
        """The worker dies and another takes over: what it had under way nobody knows."""
        for out in self.out:
            name = out.move.step.name
            if out.move.act is Act.DO:
                self.doubts[name] = self.now
                if self.choose(2):
                    self.held.setdefault(name, self.now)
            elif out.move.act is Act.UNDO and self.choose(2):
                self.held.pop(name, None)
        self.out.clear()
        self.now += (0.0, 10.0, 3_600.0)[self.choose(3)]
        for intent in self.intents.values():
            intent.busy = False
            unsure = intent.state in (IntentState.INTENDED, IntentState.REMOVING)
            if unsure and (intent.unknown_since is None or intent.step in self.doubts):
                intent.unknown_since = self.doubts[intent.step] = self.now
        return True

    def cancel(self):
        if saga.pivot_begun(self.plan, self.progress):
            return False
        self.note(EntryKind.COMPENSATING, "", {"why": "cancelled by someone"})
        return True

    def operate(self, word):
        name = min(self.progress.stuck)
        back = self.progress.compensating_at is not None
        if word == 0 or (word == 1 and back):  # looks for himself, and says what he found
            if back:
                self.held.pop(name, None)
                self.doubts.pop(name, None)
                self.note(
                    EntryKind.MARKED_ABSENT, name, {"by": "op"}, {"state": IntentState.BURNED}
                )
                return True
            self.doubts.pop(name, None)
            if name in self.held:
                columns = {"state": IntentState.PRESENT, "unknown_since": None}
                self.note(EntryKind.ADOPTED, name, {"by": name}, columns)
                return True
            again = {"unknown_since": None, "due_at": 0.0, "attempts": 0}
            self.note(EntryKind.MARKED_ABSENT, name, {"by": "op"}, again)
        elif word in (1, 2):
            stuck = sorted(self.progress.stuck)
            self.note(EntryKind.RETRIED, "", {"by": "op"})
            for other in stuck:
                self.set(other, {"due_at": 0.0, "attempts": 0})
        else:
            self.note(EntryKind.ABANDONED, "", {"by": "op", "left": []})
        return True

    def rest(self, wake_at):
        """Nothing is under way and nothing is to be done now: it must say what it waits for."""
        assert self.state is self.journal_state()
        if self.state is OperationState.WAITING:
            heard = sum(map(len, self.progress.signals.values()))
            for name in self.plan.stage_names[self.progress.stage] - self.progress.done.keys():
                assert self.given[name] == heard, "a signal that no call has seen wakes its step"
            assert wake_at is not None, "who waits for a signal has a deadline all the same"
        if self.progress.compensating_at is not None:
            loose = [
                s
                for s in saga.steps_to_undo(self.plan, self.progress)
                if s.name not in self.progress.stuck
            ]
            for one in loose[:1]:
                assert (self.intents[one.name].due_at or 0.0) > self.now, "no stuck one holds it up"
        if wake_at is not None:
            assert wake_at > self.now
            self.now = wake_at
            return
        assert self.state is OperationState.STUCK, f"{self.state} waits for nothing"
        assert self.progress.cause
        self.operate(0)

    # --- the promises -----------------------------------------------------------------------------

    def check_move(self, move):
        """What may be begun."""
        name, plan, progress = move.step.name, self.plan, self.progress
        kinds = {record.kind for record in self.journal}
        back = bool(kinds & {EntryKind.REFUSED, EntryKind.COMPENSATING})
        assert name not in [out.move.step.name for out in self.out], "one call of a step at a time"
        if move.act in (Act.DO, Act.INSPECT):
            assert not back, "nothing is done once the operation turned back"
            assert name not in progress.done, "what is done is not done again"
            assert plan.stage_of[name] == progress.stage
        if move.act is Act.DO and move.step.outcome_check is not OutcomeCheck.REPEAT:
            assert name not in self.doubts, "nothing is repeated blindly"
        if move.act in (Act.UNDO, Act.COUNT_UNDONE):
            assert back, "no undo before the decision is recorded"
            newer = {s.name for s in saga.steps_to_undo(plan, progress)} - progress.stuck
            newer = {n for n in newer if plan.stage_of[n] > plan.stage_of[name]}
            assert not newer, "newest first, unless stuck"
        if move.act is Act.COUNT_UNDONE:
            known = (
                move.step.outcome_check is not OutcomeCheck.NOBODY_KNOWS or name not in self.doubts
            )
            assert known, "what may have happened is not forgotten"
        if move.act is Act.DECLARE_STUCK:
            assert name in self.doubts, "nobody gives up what is known"

    def check_record(self, before, record):
        """What may be recorded."""
        kind, plan = record.kind, self.plan
        done = [r.step for r in self.journal if r.kind in (EntryKind.DONE, EntryKind.ADOPTED)]
        assert len(done) == len(set(done)), "a step is done at most once"
        forward = before.compensating_at is None
        if forward and before.stage >= plan.pivot_stage:
            assert kind is not EntryKind.COMPENSATING
            if kind is EntryKind.REFUSED:
                assert plan.steps[record.step].kind is StepKind.PIVOT
        elif not forward:
            assert self.progress.compensating_at == before.compensating_at, "its clock is not reset"
            if kind in (EntryKind.DONE, EntryKind.REFUSED):
                assert plan.steps[record.step].outcome_check is OutcomeCheck.NOBODY_KNOWS
        if kind in (EntryKind.REFUSED, EntryKind.COMPENSATING) and forward:
            assert not self.progress.stuck, "turning back starts anew"
        if kind is EntryKind.STUCK:
            assert record.step not in before.stuck, "once is enough"
            assert record.body["why"], "stuck for a reason"
        if self.state is OperationState.RUNNING:
            assert not self.progress.cause, "no trouble, no cause"

    def check_end(self):
        """What the world holds when all is over."""
        progress, plan = self.progress, self.plan
        match progress.end:
            case OperationState.SUCCEEDED:
                assert set(progress.done) == set(plan.steps)
                assert not progress.cause
                adopted = [r.step for r in self.journal if r.kind is EntryKind.ADOPTED]
                assert set(plan.steps) <= set(self.held) | set(adopted)
            case OperationState.COMPENSATED:
                assert progress.cause
                assert not self.out, "it has ended, and a call of it is out"
                left = [n for n in self.held if plan.steps[n].kind is not StepKind.RETRIABLE]
                assert not [n for n in left if plan.steps[n].has_undo], "an orphan"
                assert not [n for n in left if plan.steps[n].kind is StepKind.PIVOT], "a split end"
                unsure = [plan.steps[n] for n in self.doubts]
                unsure = [
                    s
                    for s in unsure
                    if s.outcome_check is OutcomeCheck.NOBODY_KNOWS and not s.has_undo
                ]
                assert not [s for s in unsure if s.kind is StepKind.COMPENSATABLE], (
                    "an honest unknown"
                )
            case _:
                assert progress.end is OperationState.ABANDONED
        again = progress_after(plan, self.journal)
        same = [getattr(again, slot) == getattr(progress, slot) for slot in progress.__slots__]
        assert all(same), "the journal is the truth"
        rest = saga.next_moves(plan, progress, self.intents, self.now)
        assert rest == NO_MOVES
        assert not saga.is_relevant(progress, Move(Act.DO, plan.stages[0][0]), Done())
