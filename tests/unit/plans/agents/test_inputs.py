"""The inputs of operations on agents: what is stored, and what is read of it."""

import json

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import RequestOptions
from tenure.app.agents.subject import typed_input_of
from tenure.core.agent import AgentState
from tenure.core.errors import PlanUnknown
from tenure.core.records import OperationRecord
from tenure.plans.agents.delete import DeleteInput, DeleteOptions
from tenure.plans.agents.inputs import AgentInput, QueuedInput, VerbInput, VerbOptions, plain_fields
from tenure.plans.agents.lifecycle import VERBS, read_input, read_options
from tenure.plans.agents.stop import StopOptions
from tenure.plans.agents.suspend import SuspendInput, SuspendOptions
from tenure.ports.store import Change, Set
from tests.unit.support.agent_planes import agent_test

CREATE = {"name", "spec", "runtime", "principal"}
VERB = CREATE | {"was", "after", "runtimes", "drain_seconds", "retention", "epoch"}


async def stored_input(harness, operation):
    return json.loads((await harness.plane.store.find(OperationRecord, (operation.id,))).input)


@agent_test
async def test_the_keys_of_a_stored_input_are_those_that_earlier_releases_read(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    assert set(await stored_input(harness, created)) == CREATE
    await harness.wait_for(created)
    suspended = await harness.run_verb("suspend")
    assert set(await stored_input(harness, suspended)) == VERB | {"keep_runtime"}
    assert set(await stored_input(harness, await harness.run_verb("resume"))) == VERB
    assert set(await stored_input(harness, await harness.run_verb("stop"))) == VERB | {
        "keep_runtime"
    }
    assert set(await stored_input(harness, await harness.run_verb("delete"))) == VERB | {"owners"}


@agent_test
async def test_the_runtimes_of_a_stored_input_have_the_keys_of_earlier_releases(harness):
    await harness.create_ready()
    (held,) = (await stored_input(harness, await harness.run_verb("stop")))["runtimes"]
    assert set(held) == {"operation", "step", "key", "generation"}


@agent_test
async def test_a_queued_verb_stores_its_options_and_no_more_of_the_agent(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    resumed = await agents.resume_agent(
        harness.plane, CALLER, "alpha", request_options=RequestOptions(queue=True)
    )
    row = await harness.plane.store.find(OperationRecord, (resumed.id,))
    assert set(json.loads(row.input)) == {"name", "principal", "was", "after", "queued"}
    values = typed_input_of(row)
    assert isinstance(values, QueuedInput)
    assert (values.name, values.previous_operation, values.return_state) == (
        "alpha",
        created.id,
        AgentState.CREATE_FAILED,
    )


@agent_test
async def test_the_lock_keeps_what_a_newer_release_has_stored_beside_our_keys(harness):
    """An operation may be accepted by one release and started by another."""
    await harness.create_ready()
    harness.fakes.runtime.busy = {
        thing.key.text for thing in harness.world.holds(provider="runtime")
    }
    suspended = await agents.suspend_agent(harness.plane, CALLER, "alpha", drain_seconds=30.0)
    deleted = await agents.delete_agent(harness.plane, CALLER, "alpha")
    row = await harness.plane.store.find(OperationRecord, (deleted.id,))
    text = json.dumps({**json.loads(row.input), "of_a_newer_release": 7})
    write = Set("operation", (deleted.id,), {"input": text})
    await harness.plane.store.commit(Change("", (), (write,)))
    await harness.wait_for(suspended)
    await harness.wait_for(deleted)
    assert (await stored_input(harness, deleted))["of_a_newer_release"] == 7
    assert (await stored_input(harness, deleted))["after"] == ""


def test_an_input_that_lacks_newer_keys_is_read_with_defaults():
    values = read_input(
        "delete_agent", {"name": "alpha", "was": "SUSPENDED", "after": "", "epoch": 3}
    )
    assert isinstance(values, DeleteInput)
    assert (values.return_state, values.epoch, values.cascade_operation) == (
        AgentState.SUSPENDED,
        3,
        "",
    )
    assert not values.owners
    assert read_input("suspend_agent", {}) == SuspendInput()
    assert read_input("create_agent", {}) == AgentInput()
    assert type(read_input("resume_agent", {})) is VerbInput


def test_a_key_that_a_newer_release_stores_in_another_form_is_left_to_that_release():
    with pytest.raises(PlanUnknown, match="the input of stop_agent is stored in a form"):
        read_input("stop_agent", {"was": "HIBERNATED"})


def test_an_operation_that_is_no_verb_has_the_fields_that_are_known():
    row = OperationRecord(
        id="o", tenant="t", principal="p", plan_name="no_verb_of_ours", plan_digest="d",
        agent="a", generation=1, state="PENDING", revision=0, token=0, worker="", due_at=0.0,
        input='{"queued":true,"after":"x"}', error=None, created_at=0.0, updated_at=0.0,
        ended_at=None,
    )  # fmt: skip
    assert typed_input_of(row) == QueuedInput(previous_operation="x")
    assert typed_input_of(row._replace(input='{"was":7}')) == VerbInput()


def test_the_options_of_a_request_are_those_that_idempotency_keys_were_given_for():
    """They are part of the fingerprint of a request, which outlives a release."""
    assert plain_fields(VerbOptions()) == {}
    assert plain_fields(StopOptions()) == {"keep_runtime": False}
    assert plain_fields(SuspendOptions()) == {"keep_runtime": False, "drain_seconds": None}
    assert plain_fields(DeleteOptions()) == {"drain_seconds": None, "retention": None}
    assert plain_fields(DeleteOptions(cascade_operation="x"))["cascade"] == "x"


def test_the_options_of_a_queued_verb_are_read_when_it_starts():
    stored_input = {"queued": True, "name": "alpha", "keep_runtime": True, "drain_seconds": None}
    assert read_options("suspend_agent", stored_input) == SuspendOptions(keep_runtime=True)
    assert read_options("resume_agent", stored_input) == VerbOptions(drain_seconds=None)


@pytest.mark.parametrize("verb", VERBS.values(), ids=list(VERBS))
def test_every_option_of_a_verb_reaches_its_steps(verb):
    options = set((verb.options or VerbOptions).__struct_fields__)
    values = set((verb.input or VerbInput).__struct_fields__)
    ignored = {"keep_runtime"} if verb.name == "stop_agent" else set()
    assert verb.accept_trigger is None or options - ignored <= values
