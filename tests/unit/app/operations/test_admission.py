"""Accepting: what is acknowledged is on disk once, whoever asks how often."""

import asyncio

import pytest
from msgspec.structs import replace

from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.start_checks import prepare
from tenure.core.endings import Done, Waiting
from tenure.core.errors import Conflict, Invalid, LimitExceeded, NotFound, Rejected, StoreError
from tenure.core.limits import (
    IDEMPOTENCY_KEY_CHARACTERS_MAX,
    IDEMPOTENCY_SECONDS,
    INPUT_BYTES_MAX,
)
from tenure.core.operation import IntentState, OperationState
from tenure.testing.operators import by
from tenure.testing.plans import SIGNAL
from tests.unit.support.scripted_planes import (
    TENANT,
    Script,
    accept,
    refuse,
    step,
    virtual_time_test,
)

ASKED = OperationRequest("waits", idempotency_key="once")


@virtual_time_test
async def test_the_answer_shows_the_first_stage_intended_and_nothing_called(cluster):
    plane = (await cluster.start()).plane
    accepted = await admission.accept(plane, OperationRequest("parallel"))
    assert (accepted.state, accepted.generation, accepted.done) == (
        OperationState.RUNNING,
        1,
        False,
    )
    assert [s.state for s in accepted.steps] == [IntentState.INTENDED, None, None, None, None]
    assert not cluster.holds()
    assert (await reads.get_operation(plane, TENANT, accepted.id)).agent == accepted.agent


@virtual_time_test
async def test_the_same_key_and_request_answer_with_the_same_operation_also_after_its_end(cluster):
    plane = (await cluster.start()).plane
    command = OperationRequest("linear", idempotency_key="once")
    first = await admission.accept(plane, command)
    assert (await admission.accept(plane, command)).id == first.id
    assert (await reads.wait(plane, TENANT, first.id)).state is OperationState.SUCCEEDED
    again = await admission.accept(plane, command)
    assert (again.id, again.state) == (first.id, OperationState.SUCCEEDED)
    assert len(await reads.list_operations(plane, TENANT)) == 1


@virtual_time_test
async def test_requests_with_the_same_key_at_the_same_time_make_one_operation(cluster):
    one, other = (await cluster.start()).plane, (await cluster.start()).plane
    requests = [admission.accept(plane, ASKED) for plane in (one, other) * 5]
    assert len({accepted.id for accepted in await asyncio.gather(*requests)}) == 1


@virtual_time_test
async def test_a_key_used_for_another_request_is_a_conflict_that_names_the_first(cluster):
    plane = (await cluster.start()).plane
    first = await admission.accept(plane, ASKED)
    for other in (replace(ASKED, input={"size": 2}), replace(ASKED, plan="linear")):
        with pytest.raises(Conflict, match="use a new key") as refused:
            await admission.accept(plane, other)
        assert refused.value.code == "idempotency_mismatch"
        assert refused.value.holder == first.id


@virtual_time_test
async def test_a_key_answers_first_also_where_its_agent_is_busy(cluster):
    plane = (await cluster.start()).plane
    command = replace(ASKED, target="bird")
    first = await admission.accept(plane, command)
    assert (await admission.accept(plane, command)).id == first.id
    with pytest.raises(Conflict) as refused:
        await admission.accept(plane, replace(command, input={"size": 2}))
    assert refused.value.code == "idempotency_mismatch"
    with pytest.raises(Conflict) as refused:
        await admission.accept(plane, replace(command, idempotency_key="twice"))
    assert refused.value.code == "operation_in_progress"


@virtual_time_test
async def test_a_key_can_be_used_again_after_its_time(cluster):
    plane = (await cluster.start()).plane
    first = await admission.accept(plane, replace(ASKED, plan="linear"))
    await asyncio.sleep(IDEMPOTENCY_SECONDS - 1)
    same = await admission.accept(plane, replace(ASKED, plan="linear"))
    assert same.id == first.id
    await asyncio.sleep(2)
    other = await admission.accept(plane, replace(ASKED, plan="pivot"))
    assert other.id != first.id
    assert (await admission.accept(plane, replace(ASKED, plan="pivot"))).id == other.id


@virtual_time_test
async def test_keys_of_other_tenants_and_principals_are_their_own(cluster):
    plane = (await cluster.start()).plane
    commands = (ASKED, replace(ASKED, tenant="north"), replace(ASKED, principal="a friend"))
    assert len({(await admission.accept(plane, one)).id for one in commands}) == 3


@virtual_time_test
async def test_a_second_operation_on_an_agent_is_refused_by_the_name_of_the_first(cluster):
    plane = (await cluster.start()).plane
    first = await accept(plane, "waits", "bird")
    with pytest.raises(Conflict, match=f"operation {first} works on this agent") as refused:
        await accept(plane, "linear", "bird")
    assert (refused.value.code, refused.value.holder) == ("operation_in_progress", first)
    await operations.cancel(plane, by("the caller"), first)
    assert (await reads.wait(plane, TENANT, first)).state is OperationState.COMPENSATED
    second = await admission.accept(plane, OperationRequest("linear", "bird"))
    assert second.generation == 2


@virtual_time_test
async def test_a_plan_that_is_no_verb_lets_go_of_its_agent_whatever_it_was_given(cluster):
    cluster.plan("looks_like_one", step("turn", Script(Rejected("no"))))
    plane = (await cluster.start()).plane
    command = OperationRequest("looks_like_one", "bird", {"after": "another", "queued": True})
    first = await admission.accept(plane, command)
    assert (await reads.wait(plane, TENANT, first.id)).state is OperationState.COMPENSATED
    assert (await admission.accept(plane, OperationRequest("linear", "bird"))).generation == 2


@virtual_time_test
async def test_of_many_at_the_same_time_one_agent_takes_one(cluster):
    plane = (await cluster.start()).plane
    for round_ in range(2):  # an agent that is new, then one that is there
        requests = [accept(plane, "linear", "bird") for _ in range(5)]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        (name,) = [answer for answer in answers if isinstance(answer, str)]
        refused = [answer for answer in answers if isinstance(answer, Conflict)]
        assert {error.code for error in refused} == {"operation_in_progress"}
        assert {error.holder for error in refused} == {name}
        seen = await reads.wait(plane, TENANT, name)
        assert (seen.state, seen.generation) == (OperationState.SUCCEEDED, round_ + 1)


@virtual_time_test
async def test_who_is_overtaken_on_an_agent_reads_again_and_follows(cluster):
    plane, other = (await cluster.start()).plane, (await cluster.start()).plane

    async def overtaken():
        await reads.wait(other, TENANT, await accept(other, "linear", "bird"))

    for round_ in range(2):  # an agent that is new, then one that is there
        cluster.stores[0].after["find"] = [overtaken]
        mine = await admission.accept(plane, OperationRequest("linear", "bird"))
        assert mine.generation == 2 * round_ + 2
        assert (await reads.wait(plane, TENANT, mine.id)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_another_tenants_agent_and_operation_are_not_there(cluster):
    plane = (await cluster.start()).plane
    name = await accept(plane, "waits", "bird")
    with pytest.raises(NotFound, match="there is no agent bird"):
        await admission.accept(plane, OperationRequest("linear", "bird", tenant="north"))
    for ask in (
        reads.get_operation(plane, "north", name),
        operations.cancel(plane, by("nobody", "north"), name),
        reads.wait(plane, "north", name),
        reads.get_operation(plane, TENANT, "no-such-operation"),
    ):
        with pytest.raises(NotFound, match="there is no operation"):
            await ask
    assert await reads.list_operations(plane, "north") == []


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        (OperationRequest("nope"), NotFound, "there is no plan 'nope'; known are: charge, linear"),
        (
            OperationRequest("linear", input={"x": object()}),
            Invalid,
            "the input must be plain data",
        ),
        (
            OperationRequest("linear", input={"x": "\ud800"}),
            Invalid,
            "the input must be plain data",
        ),
        (
            OperationRequest("linear", input={"x": "y" * INPUT_BYTES_MAX}),
            LimitExceeded,
            f"the input has at most {INPUT_BYTES_MAX} bytes as JSON; this one has 262152",
        ),
        (
            OperationRequest("linear", input={"x": "€" * (INPUT_BYTES_MAX // 2)}),
            LimitExceeded,
            "393224",
        ),
        (
            OperationRequest("linear", idempotency_key="k" * (IDEMPOTENCY_KEY_CHARACTERS_MAX + 1)),
            Invalid,
            f"at most {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters",
        ),
    ],
    ids=["plan", "object", "surrogate", "large", "many bytes", "key"],
)
@virtual_time_test
async def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    cluster, command, error, words
):
    plane = (await cluster.start()).plane
    with pytest.raises(error, match=words):
        await admission.accept(plane, command)
    assert await reads.list_operations(plane, TENANT) == []


@virtual_time_test
async def test_what_is_just_within_the_bounds_is_accepted(cluster):
    plane = (await cluster.start()).plane
    most = "y" * (INPUT_BYTES_MAX - len('{"x":""}'))
    key = "k" * IDEMPOTENCY_KEY_CHARACTERS_MAX
    command = OperationRequest("linear", input={"x": most}, idempotency_key=key)
    accepted = await admission.accept(plane, command)
    assert (await reads.wait(plane, TENANT, accepted.id)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_steps_are_given_what_was_accepted_whatever_becomes_of_it_afterwards(cluster):
    ask = Script(Waiting(SIGNAL))
    cluster.plan("asks", step("ask", ask))
    plane = (await cluster.start()).plane
    given = {"sizes": (1, 2), "names": ["a"]}
    name = (await admission.accept(plane, OperationRequest("asks", input=given))).id
    given["names"] = ["b"]
    await asyncio.sleep(1)
    await operations.signal(plane, by("a friend"), name, name=SIGNAL)
    await reads.wait(plane, TENANT, name)
    assert [call.input for call in ask.calls] == [{"sizes": [1, 2], "names": ["a"]}] * 2


@virtual_time_test
async def test_without_a_running_engine_it_is_kept_until_someone_claims_it(cluster):
    idle = cluster.boot("idle").plane
    await prepare(idle)
    accepted = await admission.accept(idle, OperationRequest("linear"))
    assert accepted.state is OperationState.PENDING
    plane = (await cluster.start()).plane
    assert (await reads.wait(plane, TENANT, accepted.id)).state is OperationState.SUCCEEDED


@virtual_time_test
async def test_when_the_store_has_no_room_the_caller_is_told_and_can_ask_again(cluster):
    do = Script(Done({"made": 1}))
    cluster.plan("one", step("only", do))
    plane = (await cluster.start()).plane
    cluster.stores[0].before["commit"] = [refuse]
    with pytest.raises(StoreError):
        await accept(plane, "one")
    assert await reads.list_operations(plane, TENANT) == []
    name = await accept(plane, "one")
    assert (await reads.wait(plane, TENANT, name)).state is OperationState.SUCCEEDED
    assert len(do.calls) == 1
