"""An exhaustive model of the intent rules: which rule keeps which bad end away.

Two workers, a caller and the providers take turns in every order there is.  A call is a message:
once sent it may be applied at any later time, also after its sender died, gave up, or lost its
claim.  Delay is free; `faults` bounds how often the world does worse.  A plan is its steps by
letter, the pivot `p` last; the others are one stage, and their providers honour keys.  The pivot's
is the hard kind: it refuses repeats, may refuse any call at its whim, and can only be asked later.

Two rules are left out, as nothing bad comes of it here: workers may undo a step while they wait for
its do (tombstones refuse it; awaiting helps where a provider cannot), and could repeat keyed calls
without inspecting.  A change in place is not told apart: its resource is "the new spec", and its
tombstone an undo that outranks its do.  Deadlines, STUCK and undos over stages are not modelled.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias


class Rule(StrEnum):
    """A safeguard that can be switched off."""

    TOMBSTONES = "tombstones"  # remove burns the key: a later ensure of it is refused
    FENCE_TOKENS = "fence tokens"  # a record needs the token of the latest claim
    REVISION_GUARDS = "revision guards"  # a record needs the revision it was decided on
    CANCEL_BEFORE_PIVOT = "cancel before pivot"  # a cancel is refused once the pivot is intended
    UNCLAIMED_GUARD = "unclaimed guard"  # a cancel that skips the undos guards "never claimed"
    UNDO_INTENDED = "undo intended"  # compensation covers intended steps, not only done ones
    NEW_GENERATION = "new generation"  # each operation has keys of its own
    INSPECT_UNKNOWN = "inspect unknown"  # look before repeating a call whose outcome is unknown
    SOLE_REFUSAL = "sole refusal"  # a pivot's refusal counts only as the answer to its only call
    SENT_ONCE = "sent once"  # no transport repeats a pivot's call on its own


class End(StrEnum):
    """A bad end, judged in the world when nothing moves any more."""

    ORPHAN = "orphan"  # a resource whose operation is COMPENSATED
    LOST = "lost"  # the operation SUCCEEDED but its resource is gone
    SPLIT = "split"  # the pivot is applied but the operation is COMPENSATED
    UNHEEDED = "unheeded"  # the cancel was accepted but the operation SUCCEEDED
    BARRED = "barred"  # COMPENSATED though nobody cancelled it and no provider was unwilling
    HUNG = "hung"  # an operation is open and no way leads to its end, even without faults


Phase = Literal["RUNNING", "COMPENSATING", "SUCCEEDED", "COMPENSATED"]
Row = Literal["", "INTENDED", "PRESENT", "REFUSED", "BURNED"]
Verb = Literal["do", "undo", "judge"]
Message: TypeAlias = tuple[Verb, int, int, int]  # of which operation and step; who waits for it
Edge: TypeAlias = "tuple[str, str, State]"  # an action, told in a sentence, and where it leads
ALL_RULES = frozenset(Rule)
CHANCES = {"cancel", "retry", "takeover", "restart", "duplicate", "give up", "lose", "refuse"}
ACCEPTED: tuple[Row, ...] = ("INTENDED", "INTENDED", "")
OPEN = {"RUNNING", "COMPENSATING"}
NAMES, NOBODY = "AB", -1


class Operation(NamedTuple):
    """What the journal says.  A claim raises the tokens of all rows, so one number will do."""

    rows: tuple[Row, ...]
    phase: Phase = "RUNNING"
    cancelled: bool = False
    revision: int = 0
    token: int = 0

    def is_stopped(self) -> bool:
        return self.cancelled or "REFUSED" in self.rows


class Change(NamedTuple):
    """A record, decided on what was read at `revision`."""

    revision: int
    rows: tuple[tuple[int, Row], ...] = ()
    phase: Phase | None = None

    def apply_to(self, to: Operation) -> Operation:
        rows = tuple((dict(enumerate(to.rows)) | dict(self.rows)).values())
        return to._replace(rows=rows, phase=self.phase or to.phase, revision=to.revision + 1)


class Task(NamedTuple):
    """What a worker is about with one step: a call; once answered, the change to record."""

    verb: Verb
    refused: bool = False
    change: Change | None = None


class Worker(NamedTuple):
    """All that a worker remembers; one task for each step, and one to judge the whole."""

    operation: int = NOBODY
    token: int = 0
    unsure: frozenset[int] = frozenset()  # steps of which an earlier call may be under way
    tasks: tuple[Task | None, ...] = ()


class State(NamedTuple):
    """Everything: the journal, the workers, the network and the world."""

    operations: tuple[Operation, ...]
    workers: tuple[Worker, ...]
    faults: int  # how many may still happen
    net: tuple[Message, ...] = ()
    held: frozenset[tuple[int, int]] = frozenset()  # of which step and generation
    burned: frozenset[tuple[int, int]] = frozenset()  # what can never be held again
    unwilling: frozenset[int] = frozenset()  # operations of which they refused a call at whim
    cancel: Operation | None = None  # as the API read what it is about to cancel

    def with_operation(self, at: int, new: Operation) -> "State":
        return self._replace(operations=(*self.operations[:at], new, *self.operations[at + 1 :]))

    def with_worker(self, at: int, new: Worker) -> "State":
        return self._replace(workers=(*self.workers[:at], new, *self.workers[at + 1 :]))

    def with_task(self, at: int, slot: int, new: Task | None) -> "State":
        tasks = self.workers[at].tasks
        worker = self.workers[at]._replace(tasks=(*tasks[:slot], new, *tasks[slot + 1 :]))
        return self.with_worker(at, worker)

    def with_net(self, messages: Iterable[Message]) -> "State":
        return self._replace(net=tuple(sorted(messages)))

    def with_calls_abandoned(self, who: int, steps: Iterable[int]) -> "State":
        net = ((*m[:3], NOBODY) if m[3] == who and m[2] in steps else m for m in self.net)
        return self.with_net(net)


class Model(NamedTuple):
    """The moves of everybody under a set of rules."""

    rules: frozenset[Rule]
    plan: str
    operations: int
    pivot: int

    def edges(self, state: State) -> Iterator[Edge]:
        """Everything that can happen next."""
        harmed = state._replace(faults=state.faults - 1)
        for who, worker in enumerate(state.workers):
            moves = self.claims if worker.operation == NOBODY else self.works
            yield from moves(state, who)
            if state.faults and worker.operation != NOBODY:
                forgotten = harmed.with_calls_abandoned(who, range(len(self.plan)))
                yield "restart", f"{NAMES[who]} restarts", forgotten.with_worker(who, Worker())
        for message in dict.fromkeys(state.net):
            rest = list(state.net)
            rest.remove(message)
            yield self.delivery(state.with_net(rest), message)
            if state.faults and message[3] != NOBODY:
                yield from self.mishaps(harmed.with_net(rest), message)
        yield from self.requests(state)

    def undoable(self, read: Operation) -> set[int]:
        """The steps that a compensation has still to undo; a pivot has no undo."""
        early = {"INTENDED", "REFUSED"} if Rule.UNDO_INTENDED in self.rules else set()
        return {step for step in range(self.pivot) if read.rows[step] in {"PRESENT", *early}}

    def decide(self, read: Operation, slot: int, task: Task) -> Change | None:
        """What to record; whoever completes a stage intends the next one with the same record."""
        match task.verb, read.phase:
            case "judge", "RUNNING" if read.is_stopped():
                phase: Phase = "COMPENSATING" if self.undoable(read) else "COMPENSATED"
                return Change(read.revision, phase=phase)
            case "do", "RUNNING" if read.rows[slot] == "INTENDED":
                if task.refused:
                    return Change(read.revision, ((slot, "REFUSED"),))
                if slot == self.pivot:
                    return Change(read.revision, ((slot, "PRESENT"),), "SUCCEEDED")
                others = {read.rows[other] for other in range(self.pivot) if other != slot}
                if others <= {"PRESENT"} and not read.is_stopped():
                    return Change(read.revision, ((slot, "PRESENT"), (self.pivot, "INTENDED")))
                return Change(read.revision, ((slot, "PRESENT"),))
            case "undo", "COMPENSATING" if read.rows[slot] != "BURNED":
                rest = self.undoable(read) - {slot}
                return Change(read.revision, ((slot, "BURNED"),), None if rest else "COMPENSATED")
            case _:
                return None

    def claims(self, state: State, who: int) -> Iterator[Edge]:
        current, operation = len(state.operations) - 1, state.operations[-1]
        held = any(w.operation == current and w.token == operation.token for w in state.workers)
        alike = who > 0 and state.workers[0].operation == NOBODY  # then let the first claim
        if operation.phase not in OPEN or alike or (held and not state.faults):
            return
        intended = {step for step, row in enumerate(operation.rows) if row == "INTENDED"}
        unsure = frozenset(intended if operation.token else ())  # before a claim nobody calls
        token = operation.token + 1
        claimed = state.with_operation(current, operation._replace(token=token))
        worker = Worker(current, token, unsure, (None,) * (len(self.plan) + 1))
        claimed = claimed.with_worker(who, worker)._replace(faults=state.faults - held)
        text = f"{NAMES[who]} claims #{current + 1} with token {token}"
        yield "takeover" if held else "claim", text + held * ", though its holder lives", claimed

    def works(self, state: State, who: int) -> Iterator[Edge]:
        """A worker commits what it decided, or reads and begins something."""
        worker = state.workers[who]
        read, fenced = state.operations[worker.operation], self.is_fenced(state, worker)
        for slot, task in enumerate(worker.tasks):
            if task and task.change:
                yield self.commit(state, who, slot, task, task.change)
            elif fenced or (task and task.verb == "undo"):
                pass  # it waits for an answer, or for nothing
            elif slot > self.pivot:
                if self.decide(read, slot, Task("judge")):
                    yield "judge", *self.decide_on_answer("", state, who, slot, Task("judge"))
            elif read.phase == "COMPENSATING" and slot in self.undoable(read):
                yield self.call("", state, who, slot, "undo")
            elif task or read.rows[slot] != "INTENDED" or read.is_stopped():
                pass
            elif slot not in worker.unsure or Rule.INSPECT_UNKNOWN not in self.rules:
                yield self.call("", state, who, slot, "do")
            elif self.key(slot, worker.operation) in state.held:
                yield (
                    "inspect",
                    *self.decide_on_answer("inspected: present; ", state, who, slot, Task("do")),
                )
            else:
                yield self.call("inspected: absent; ", state, who, slot, "do")

    def call(self, prefix: str, state: State, who: int, step: int, verb: Verb) -> Edge:
        message: Message = (verb, state.workers[who].operation, step, who)
        left = state.with_calls_abandoned(who, [step]).with_task(who, step, Task(verb))
        text = f"{prefix}{NAMES[who]} calls {self.name(message)}"
        return "call", text, left.with_net((*left.net, message))

    def decide_on_answer(
        self, prefix: str, state: State, who: int, slot: int, task: Task
    ) -> tuple[str, State]:
        """With an answer in hand the worker reads, and keeps the change it decides on."""
        worker = state.workers[who]
        repeated = slot == self.pivot and slot in worker.unsure
        doubted = repeated and task.refused and Rule.SOLE_REFUSAL in self.rules
        change = None if doubted else self.decide(state.operations[worker.operation], slot, task)
        kept = task._replace(change=change) if change else None
        does = (
            f"decides {self.describe(change)}" if change else "doubts it" if doubted else "drops it"
        )
        return f"{prefix}{NAMES[who]} {does}", state.with_task(who, slot, kept)

    def commit(self, state: State, who: int, slot: int, task: Task, change: Change) -> Edge:
        worker, name = state.workers[who], NAMES[who]
        operation, freed = state.operations[worker.operation], state.with_task(who, slot, None)
        if self.is_fenced(state, worker):
            return "fenced", f"{name}'s record fails on its token", freed
        if Rule.REVISION_GUARDS in self.rules and change.revision != operation.revision:
            prefix = f"{name}'s record fails on the revision; "
            return "conflict", *self.decide_on_answer(prefix, state, who, slot, task)
        recorded = freed.with_operation(worker.operation, change.apply_to(operation))
        return (
            "record",
            f"{name} records {self.describe(change)} for #{worker.operation + 1}",
            recorded,
        )

    def is_fenced(self, state: State, worker: Worker) -> bool:
        current = state.operations[worker.operation].token
        return worker.token != current and Rule.FENCE_TOKENS in self.rules

    def forget_ended(self, state: State) -> State:
        """The same state, but who has nothing more to do with an operation forgets it."""
        for who, worker in enumerate(state.workers):
            ended = state.operations[worker.operation].phase not in OPEN
            if worker.tasks and not any(worker.tasks) and (ended or self.is_fenced(state, worker)):
                state = state.with_worker(who, Worker())
        return state

    def delivery(self, state: State, message: Message) -> Edge:
        """The provider applies a call and answers, if anybody still listens."""
        verb, operation, step, waiter = message
        key = self.key(step, operation)
        refused = verb == "do" and key in (state.held if step == self.pivot else state.burned)
        if verb == "undo":
            burned = {key} if Rule.TOMBSTONES in self.rules else set()
            state = state._replace(held=state.held - {key}, burned=state.burned | burned)
        elif not refused:
            state = state._replace(held=state.held | {key})
        prefix = f"{self.name(message)} arrives: {'refused' if refused else 'done'}; "
        if waiter == NOBODY:
            return "late delivery", f"{prefix}nobody waits for it", state
        return "delivery", *self.decide_on_answer(prefix, state, waiter, step, Task(verb, refused))

    def mishaps(self, state: State, message: Message) -> Iterator[Edge]:
        """A call is doubled, given up, lost, or refused though nothing stands against it."""
        verb, operation, step, waiter = message
        name, astray = self.name(message), (verb, operation, step, NOBODY)
        if step != self.pivot or Rule.SENT_ONCE not in self.rules:
            yield "duplicate", f"{name} is doubled", state.with_net((*state.net, message, astray))
        worker, gives_up = state.workers[waiter], f"{NAMES[waiter]} gives up waiting for {name}"
        lost = state.with_worker(waiter, worker._replace(unsure=worker.unsure | {step}))
        lost = lost.with_task(waiter, step, None)
        yield "give up", gives_up, lost.with_net((*lost.net, astray))
        yield "lose", f"{gives_up}, which is lost", lost
        if verb == "do":
            state = state._replace(unwilling=state.unwilling | {operation})
            prefix = f"{name} arrives: refused at whim; "
            yield (
                "refuse",
                *self.decide_on_answer(prefix, state, waiter, step, Task(verb, refused=True)),
            )

    def key(self, step: int, operation: int) -> tuple[int, int]:
        return (step, operation if Rule.NEW_GENERATION in self.rules or step == self.pivot else 0)

    def name(self, message: Message) -> str:
        return f"{message[0]} {self.plan[message[2]]} of #{message[1] + 1}"

    def describe(self, change: Change) -> str:
        rows = [f"{self.plan[step]} {row}" for step, row in change.rows]
        return ", ".join([*rows, change.phase] if change.phase else rows)

    def requests(self, state: State) -> Iterator[Edge]:
        """A cancel, which is read and then recorded; a new operation after a compensation."""
        current, operation = len(state.operations) - 1, state.operations[-1]
        name = f"#{current + 1}"
        late = operation.rows[self.pivot] and Rule.CANCEL_BEFORE_PIVOT in self.rules
        if read := state.cancel:
            stale = Rule.REVISION_GUARDS in self.rules and read.revision != operation.revision
            claimed = Rule.UNCLAIMED_GUARD in self.rules and not read.token and operation.token
            change = Change(read.revision, phase=None if read.token else "COMPENSATED")
            cancelled = change.apply_to(operation)._replace(cancelled=True)
            after = state if stale or claimed else state.with_operation(current, cancelled)
            text = "fails on its guard" if stale or claimed else "is recorded"
            yield "cancelled", f"the cancel of {name} {text}", after._replace(cancel=None)
        elif operation.phase == "RUNNING" and not operation.cancelled and not late:
            yield "cancel", f"the API reads {name} to cancel it", state._replace(cancel=operation)
        elif operation.phase == "COMPENSATED" and current + 1 < self.operations:
            again = (*state.operations, Operation(ACCEPTED[-len(self.plan) :]))
            yield "retry", f"{name} is tried again", state._replace(operations=again)

    def bad_ends(self, state: State) -> list[End]:
        """What is wrong in the world, once nothing moves."""
        cancelled = {n for n, o in enumerate(state.operations) if o.cancelled}
        done = {n for n, o in enumerate(state.operations) if o.phase == "SUCCEEDED"}
        undone = {n for n, o in enumerate(state.operations) if o.phase == "COMPENSATED"}
        split = {n for n in undone if self.key(self.pivot, n) in state.held}
        kept = {self.key(step, n) for n in done for step in range(self.pivot)}
        gone = {self.key(step, n) for n in undone for step in range(self.pivot)} - kept
        wrong = {
            End.ORPHAN: gone & state.held,
            End.LOST: kept - state.held,
            End.SPLIT: split,
            End.UNHEEDED: done & cancelled,
            End.BARRED: undone - split - cancelled - state.unwilling,
        }
        return [end for end, where in wrong.items() if where]


class Result(NamedTuple):
    """What was found: bad ends by kind, the shortest trace to each, how often each action."""

    states: int
    ends: dict[End, int]
    example: dict[End, tuple[str, ...]]
    actions: dict[str, int]


def explore(
    rules: Iterable[Rule] = ALL_RULES, *, plan: str = "ap", faults: int = 1, operations: int = 2
) -> Result:
    """Visits every state that can be reached, nearest first."""
    model = Model(frozenset(rules), plan, operations, len(plan) - 1)
    states = [State((Operation(ACCEPTED[-len(plan) :]),), (Worker(),) * len(NAMES), faults)]
    origin: dict[State, tuple[State, str]] = {states[0]: (states[0], "")}
    duties: dict[State, list[State]] = defaultdict(list)  # from which a duty leads to the key
    actions: Counter[str] = Counter()
    bad: dict[End, list[State]] = {end: [] for end in End}
    for state in states:  # which grow as we walk them
        edges = [(action, text, model.forget_ended(to)) for action, text, to in model.edges(state)]
        for action, text, after in edges:
            actions[action] += 1
            if after not in origin:
                origin[after] = (state, text)
                states.append(after)
            if action not in CHANCES:
                duties[after].append(state)
        for end in model.bad_ends(state) if CHANCES.issuperset(e[0] for e in edges) else ():
            bad[end].append(state)
    todo = [state for state in states if all(o.phase not in OPEN for o in state.operations)]
    hopeful = set(todo)
    while todo:
        found = set(duties[todo.pop()]) - hopeful
        hopeful |= found
        todo += found
    bad[End.HUNG] = [state for state in states if state not in hopeful]
    ends = {end: len(found) for end, found in bad.items() if found}
    example = {end: trace(origin, bad[end][0]) for end in ends}
    return Result(len(states), ends, example, dict(actions))


def trace(origin: dict[State, tuple[State, str]], state: State) -> tuple[str, ...]:
    """The actions on the way to a state."""
    before, text = origin[state]
    return (*trace(origin, before), text) if text else ()


def main() -> None:
    """Prints what each rule, switched off, lets happen, and the shortest way to it."""
    runs = [(None, "ap", 2, 2), (None, "abp", 1, 1), (Rule.REVISION_GUARDS, "abp", 1, 1)]
    runs += [(rule, "ap", 1, 2 if rule is Rule.NEW_GENERATION else 1) for rule in Rule]
    for rule, plan, faults, operations in runs:
        found = explore(ALL_RULES - {rule}, plan=plan, faults=faults, operations=operations)
        ends = ", ".join(f"{count} {end}" for end, count in found.ends.items()) or "no bad end"
        print(f"{rule or 'nothing':20}off  plan {plan:4}{found.states:7} states  {ends}")
        for end, texts in list(found.example.items())[:1]:
            print(f"  {end}:", *(f"{n:4} {text}" for n, text in enumerate(texts, 1)), sep="\n")


if __name__ == "__main__":
    main()
