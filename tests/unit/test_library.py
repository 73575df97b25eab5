"""A plane in one's own process, through `import tenure` alone."""

import asyncio
import functools
from datetime import UTC, datetime

import pytest

import tenure
from tenure import Done, IntentState, OperationState, Plan, Step, StepLimits, nothing, repeat

QUICK = StepLimits(
    call_seconds=1.0, deadline_seconds=0.3, undo_seconds=0.3, retry_first_seconds=0.05
)


def playing(test):
    """A test that is a coroutine, on a loop of its own."""

    @functools.wraps(test)
    def run_test(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run_test


class Desk:
    """A step that reserves and frees, as the test has it."""

    def __init__(self):
        self.reserved: set[str] = set()
        self.trouble: Exception | None = None
        self.is_open = True

    async def reserve(self, call):
        if not self.is_open:
            return tenure.NotYet(0.05)
        self.reserved.add(call.key.text)
        return Done({"for": call.input.get("name", "")})

    async def free(self, call):
        if self.trouble is not None:
            raise self.trouble
        self.reserved.discard(call.key.text)

    async def approval(self, call):
        for answer in call.signals.get("approved", ()):
            if not answer:
                raise tenure.Rejected("nobody approved it")
            return Done({"by": answer})
        return tenure.Waiting("approved", why="a person must approve this")

    async def greet(self, call):
        return Done("welcome, " + str(call.results["desk"]["for"]))

    def plan(self):
        return Plan(
            "onboard",
            stages=(
                Step(
                    "desk", self.reserve, undo=self.free, inspect=repeat, slot="desk", limits=QUICK
                ),
                Step("approval", self.approval, undo=nothing, inspect=repeat),
                Step("greeting", self.greet, inspect=repeat, kind=tenure.StepKind.PIVOT),
            ),
        )


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def open_plane(desk, tmp_path):
    """Opens the same file each time."""
    return functools.partial(tenure.open_plane, tmp_path / "tenure.db", plans=[desk.plan()])


async def until(plane, operation, state):
    """The operation, once it is so."""
    for _ in range(2_000):
        seen = await plane.get(operation)
        if seen.state is state:
            return seen
        await asyncio.sleep(0.01)
    raise AssertionError(f"{operation} is not {state}")


@playing
async def test_an_operation_is_started_signalled_waited_for_and_read(open_plane, desk):
    async with open_plane() as plane:
        started = await plane.start("onboard", input={"name": "ada"})
        assert started.state in (OperationState.PENDING, OperationState.RUNNING)
        assert (started.done, started.ended, started.result, started.results) == (
            False,
            None,
            None,
            {},
        )
        waiting = await until(plane, started.id, OperationState.WAITING)
        assert waiting.steps[1].waiting_on == "approved"
        assert waiting.steps[1].detail == "a person must approve this"
        assert [step.name for step in waiting.left] == ["desk"]
        await plane.signal(started.id, name="approved", payload="eve")
        done = await plane.wait(started.id)
        assert done == await plane.get(started.id)
    assert (done.plan_name, done.state, done.error) == ("onboard", OperationState.SUCCEEDED, "")
    assert done.done
    assert done.result == "welcome, ada"
    assert done.results == {
        "desk": {"for": "ada"},
        "approval": {"by": "eve"},
        "greeting": "welcome, ada",
    }
    assert [step.state for step in done.steps] == [IntentState.PRESENT] * 3
    assert done.steps[0].key in desk.reserved
    assert done.created_at < done.ended_at == done.updated_at
    assert done.created == datetime.fromtimestamp(done.created_at, UTC)
    assert done.ended == done.updated == datetime.fromtimestamp(done.ended_at, UTC)


@playing
async def test_an_early_signal_is_kept_over_a_restart_and_delivered_once(open_plane, desk):
    once = {"name": "approved", "payload": "eve", "idempotency_key": "k"}
    desk.is_open = False
    async with open_plane() as plane:
        started = await plane.start("onboard")
        await plane.signal(started.id, **once)
        assert (await plane.wait(started.id, seconds=0.1)).state is OperationState.RUNNING
    desk.is_open = True
    async with open_plane() as plane:
        assert (await plane.signal(started.id, **once)).id == started.id
        done = await plane.wait(started.id)
        with pytest.raises(tenure.Conflict) as refused:
            await plane.signal(started.id, **once | {"payload": "mallory"})
    assert refused.value.code == "idempotency_mismatch"
    assert done.results["approval"] == {"by": "eve"}


@playing
async def test_a_cancelled_operation_and_a_refused_one_are_undone(open_plane, desk):
    async with open_plane() as plane:
        cancelled = await plane.start("onboard")
        refused = await plane.start("onboard")
        await until(plane, cancelled.id, OperationState.WAITING)
        assert (await plane.cancel(cancelled.id)).state is not OperationState.WAITING
        await plane.signal(refused.id, name="approved", payload="")
        for one, why in ((cancelled, "cancelled by local"), (refused, "nobody approved it")):
            ended = await plane.wait(one.id)
            assert ended.state is OperationState.COMPENSATED
            assert why in ended.error
            assert (ended.result, ended.left) == (None, ())
        with pytest.raises(tenure.Conflict) as conflict:
            await plane.cancel(cancelled.id)
    assert conflict.value.code == "ended"
    assert not desk.reserved


@playing
async def test_a_stuck_operation_has_four_ways_out(open_plane, desk):
    desk.trouble = tenure.Unavailable("the desk is locked")
    async with open_plane() as plane:
        stuck = [(await plane.start("onboard")).id for _ in range(4)]
        for one in stuck:
            await plane.cancel(one)
        for one in stuck:
            seen = await plane.wait(one)
            assert seen.state is OperationState.STUCK
            assert [step.name for step in seen.steps if step.stuck] == ["desk"]
        with pytest.raises(tenure.Conflict) as refused:
            await plane.adopt(stuck[0], step="desk", result={})
        assert refused.value.code == "compensating"
        absent = await plane.mark_absent(stuck[1], step="desk")
        abandoned = await plane.abandon(stuck[2])
        desk.trouble = None
        await plane.retry(stuck[3])
        retried = await plane.wait(stuck[3])
        absent = await plane.wait(absent.id)
    assert (absent.state, retried.state) == (OperationState.COMPENSATED,) * 2
    assert abandoned.state is OperationState.ABANDONED
    assert abandoned.ended_at == abandoned.updated_at
    assert [step.name for step in abandoned.left] == ["desk"]


@playing
async def test_an_operators_request_under_one_key_is_carried_out_once(open_plane, desk):
    desk.trouble = tenure.Unavailable("the desk is locked")
    async with open_plane() as plane:
        stuck = (await plane.start("onboard")).id
        await plane.cancel(stuck, idempotency_key="c")
        assert (await plane.wait(stuck)).state is OperationState.STUCK
        for method, key in ((plane.retry, "r"), (plane.abandon, "a")):
            first = await method(stuck, idempotency_key=key)
            again = await method(stuck, idempotency_key=key)
            assert again.id == first.id
            with pytest.raises(tenure.Conflict):
                await method("another", idempotency_key=key)
            await plane.wait(stuck)
        assert (await plane.cancel(stuck, idempotency_key="c")).state is OperationState.ABANDONED
        with pytest.raises(tenure.Conflict, match="has ended"):
            await plane.cancel(stuck)


@playing
async def test_a_stuck_step_can_be_adopted(tmp_path):
    async def lose_reply(_call):
        raise tenure.OutcomeUnknown("the line went dead")

    step = Step("pay", lose_reply, undo=nothing, inspect=tenure.nobody_knows, limits=QUICK)
    plans = [Plan("pays", stages=(step,))]
    async with tenure.open_plane(tmp_path / "tenure.db", plans=plans) as plane:
        started = await plane.start("pays")
        assert (await plane.wait(started.id)).state is OperationState.STUCK
        await plane.adopt(started.id, step="pay", result={"receipt": 7})
        paid = await plane.wait(started.id)
    assert (paid.state, paid.result) == (OperationState.SUCCEEDED, {"receipt": 7})


@playing
async def test_operations_are_listed_in_pages_with_their_steps(open_plane):
    async with open_plane() as plane:
        names = [(await plane.start("onboard", agent=f"a{n}")).id for n in range(3)]
        await plane.signal(names[1], name="approved", payload="eve")
        done = await plane.wait(names[1])
        listed = await plane.list()
        assert [one.id for one in listed] == names
        assert listed[1] == done
        assert await plane.list(states=[OperationState.SUCCEEDED]) == (done,)
        assert await plane.list(states=["SUCCEEDED"], agent="a0") == ()
        assert [one.id for one in await plane.list(agent="a2")] == names[2:]
        assert [one.id for one in await plane.list(after=names[0], limit=1)] == names[1:2]
        with pytest.raises(tenure.Invalid, match="states are"):
            await plane.list(states=["DONE"])


@playing
async def test_an_operation_that_is_removed_while_it_is_listed_is_left_out(open_plane):
    async with open_plane() as plane:
        names = [(await plane.start("onboard")).id for _ in range(2)]
        reads = tenure.OpenPlane.get

        async def raise_not_found(self, operation):
            if operation == names[0]:
                raise tenure.NotFound("it was removed")
            return await reads(self, operation)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tenure.OpenPlane, "get", raise_not_found)
            assert [one.id for one in await plane.list()] == names[1:]


@playing
async def test_the_same_idempotency_key_is_the_same_operation(open_plane):
    async with open_plane() as plane:
        once = {"input": {"name": "ada"}, "idempotency_key": "k"}
        first = await plane.start("onboard", **once)
        assert (await plane.start("onboard", **once)).id == first.id
        with pytest.raises(tenure.Conflict) as refused:
            await plane.start("onboard", input={"name": "eve"}, idempotency_key="k")
        assert (refused.value.code, refused.value.holder) == ("idempotency_mismatch", first.id)


@playing
async def test_one_operation_at_a_time_works_on_an_agent(open_plane):
    async with open_plane() as plane:
        first = await plane.start("onboard", agent="ada")
        assert first.agent == "ada"
        with pytest.raises(tenure.Conflict) as refused:
            await plane.start("onboard", agent="ada")
        assert (refused.value.code, refused.value.holder) == ("operation_in_progress", first.id)


@playing
async def test_another_tenant_sees_nothing_of_an_operation(open_plane):
    async with open_plane(tenant="acme", principal="eve") as plane:
        assert (plane.tenant, plane.principal) == ("acme", "eve")
        started = await plane.start("onboard")
        other = plane.acting_for(tenant="globex")
        assert (other.tenant, other.principal) == ("globex", "eve")
        assert await other.list() == ()
        for verb in (other.get, other.wait, other.cancel, other.retry, other.abandon):
            with pytest.raises(tenure.NotFound, match=f"no operation {started.id}"):
                await verb(started.id)
        colleague = plane.acting_for(principal="bob")
        await colleague.cancel(started.id)
        assert (await plane.wait(started.id)).error == "cancelled by bob"
        for odd in ({"tenant": "a\nb"}, {"principal": "x" * 2_000}):
            with pytest.raises((tenure.Invalid, tenure.LimitExceeded)):
                plane.acting_for(**odd)


@playing
async def test_what_cannot_be_opened_is_refused_and_leaves_no_file(tmp_path, desk):
    file = tmp_path / "tenure.db"
    plan = desk.plan()
    for odd, match in (
        ({"plans": plan}, r"write plans=\[plan\]"),
        ({"plans": [plan], "tenant": ""}, "the name of the tenant"),
        ({"plans": [plan], "principal": "\n"}, "the name of the principal"),
    ):
        with pytest.raises(tenure.Invalid, match=match):
            async with tenure.open_plane(file, **odd):
                pass
    assert not list(tmp_path.iterdir())
    owns = [Plan("owns", subject="agent", stages=plan.stages)]
    with pytest.raises(tenure.Invalid, match=r"names the subject 'agent'.*Leave `subject` out"):
        async with tenure.open_plane(file, plans=owns):
            pass
    needs = [Plan("needs", stages=(tenure.provided("room", "rooms"),))]
    with pytest.raises(tenure.Invalid, match="calls provider 'rooms'"):
        async with tenure.open_plane(file, plans=needs):
            pass


@playing
async def test_a_file_is_open_once_and_under_one_name(open_plane):
    async with open_plane():
        with pytest.raises(tenure.StoreLocked):
            async with open_plane():
                pass
    with pytest.raises(tenure.Invalid, match="belongs to plane 'local'"):
        async with open_plane(name="another"):
            pass


@playing
async def test_what_cannot_be_started_is_refused(open_plane):
    async with open_plane() as plane:
        with pytest.raises(tenure.NotFound):
            await plane.start("unknown")
        for odd in (["a"], {"a": object()}, {1: 2}):
            with pytest.raises(tenure.Invalid):
                await plane.start("onboard", input=odd)
        assert await plane.list() == ()


@playing
async def test_a_plane_that_was_left_refuses_everything(open_plane):
    async with open_plane() as plane:
        started = await plane.start("onboard")
    for ask in (plane.start("onboard"), plane.get(started.id), plane.list()):
        with pytest.raises(tenure.StoreClosed):
            await ask


@playing
async def test_a_plain_step_that_was_not_undone_is_left(tmp_path, desk):
    async def refuse(_):
        raise tenure.Rejected("no")

    plain = Plan(
        "plain",
        stages=(
            Step("desk", desk.reserve, undo=desk.free, inspect=repeat, limits=QUICK),
            Step("note", desk.reserve, undo=nothing, inspect=repeat),
            Step("refusal", refuse, undo=nothing, inspect=repeat),
            Step("never", desk.reserve, undo=desk.free, inspect=repeat),
        ),
    )
    desk.trouble = tenure.Unavailable("the desk is locked")
    async with tenure.open_plane(tmp_path / "tenure.db", plans=[plain]) as plane:
        started = await plane.start("plain")
        assert [step.name for step in started.left] == ["desk"]
        stuck = await plane.wait(started.id)
        assert stuck.state is OperationState.STUCK
        assert [step.name for step in stuck.left] == ["desk"]
        abandoned = await plane.abandon(started.id)
        assert abandoned == await plane.get(started.id)
        desk.trouble = None
        undone = await plane.wait((await plane.start("plain")).id)
    assert abandoned.state is OperationState.ABANDONED
    assert [step.name for step in abandoned.left] == ["desk"]
    assert (undone.state, undone.left) == (OperationState.COMPENSATED, ())


@playing
async def test_arguments_that_a_file_cannot_honour_are_refused(open_plane):
    for arguments, words in (
        ({"temporal": tenure.Temporal()}, "temporal= needs a PostgreSQL store"),
        ({"execute_operations": False}, "execute_operations=False needs a PostgreSQL store"),
        ({"name": ""}, "the name of the plane must be printable text"),
        ({"name": None}, "the name of the plane must be printable text"),
        ({"plans": [1]}, "nothing but tenure.Plan objects"),
    ):
        with pytest.raises(tenure.Invalid, match=words):
            await open_plane(**arguments).__aenter__()
    async with open_plane() as plane:
        with pytest.raises(tenure.StoreLocked, match="Use the plane that is already open"):
            await open_plane().__aenter__()
        for limit in (0, -5, 1_001, True, "5"):
            with pytest.raises(tenure.Invalid, match="limit must be a whole number from 1 to 1000"):
                await plane.list(limit=limit)
        assert await plane.list(limit=1_000) == ()
        for seconds in (float("nan"), -1, "x", None):
            with pytest.raises(tenure.Invalid, match="seconds must be a number"):
                await plane.wait("0", seconds=seconds)
    with pytest.raises(tenure.Invalid, match="start with name='local'"):
        await open_plane(name="prod").__aenter__()


def test_the_default_store_is_a_file_in_the_working_directory(tmp_path, monkeypatch, desk):
    async def main():
        async with tenure.open_plane(plans=[desk.plan()]):
            pass

    monkeypatch.chdir(tmp_path)
    asyncio.run(main())
    assert (tmp_path / "tenure.db").is_file()
