"""Subscriptions: what makes no sense is refused, and nothing of one that is deleted stays."""

import asyncio
from dataclasses import replace

import pytest

from proofs.agents.lifecycle import CALLER, TENANT
from proofs.events.deliver_all import deliver_all
from tenure.adapters.bus.local import LocalBus
from tenure.adapters.seal.local import LocalSeal
from tenure.app.events import subscriptions
from tenure.app.events.reactions import REACTIONS
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.core.errors import Conflict, Invalid, NotFound
from tenure.core.limits import IDEMPOTENCY_SECONDS, SUBSCRIPTIONS_MAX
from tenure.core.records import (
    AuditRecord,
    CursorRecord,
    IdempotencyRecord,
    LetterRecord,
    ParkedRecord,
    ReservationRecord,
    SubscriptionRecord,
    key_of,
)
from tenure.core.records.table import dict_of
from tenure.core.roles import Caller, Role
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.relay import Relay
from tenure.ports.bus import Outgoing
from tenure.ports.store import Change, ChangePart, Put, Row, Set
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test
from tests.unit.support.sinks import Sink
from tests.unit.support.webhook_secrets import secret_of


@agent_test
async def test_what_makes_no_sense_is_refused_by_name(harness):
    for asked, field in (
        (SubscriptionRequest("No", SubscriptionKind.PULL), "name"),
        (SubscriptionRequest("n", SubscriptionKind.PULL, target="somewhere"), "target"),
        (SubscriptionRequest("n", SubscriptionKind.NATS, target="a b"), "target"),
        (SubscriptionRequest("n", SubscriptionKind.PULL, types=("nonsense",)), "types"),
        (
            SubscriptionRequest("n", SubscriptionKind.PULL, types=("agent.ready",), required=True),
            "required: its types include",
        ),
        (SubscriptionRequest("n", SubscriptionKind.WEBHOOK), "url: it is missing"),
        (
            SubscriptionRequest("n", SubscriptionKind.WEBHOOK, target="https://hooks.example/in"),
            "cannot store secrets",
        ),
    ):
        with pytest.raises(Invalid, match=field):
            await subscriptions.create_subscription(harness.plane, CALLER, asked)
    assert await subscriptions.list_subscriptions(harness.plane, CALLER) == []


@agent_test
async def test_a_tenant_has_so_many_and_no_more(harness):
    row: Row = {
        "tenant": TENANT,
        "principal": "x",
        "name": "n",
        "kind": SubscriptionKind.PULL,
        "target": "",
        "agent": "",
        "types": "[]",
        "required": 0,
        "revision": 1,
        "created_at": 0.0,
        "updated_at": 0.0,
    }
    puts = tuple(Put("subscription", (f"{n:032x}",), row) for n in range(SUBSCRIPTIONS_MAX))
    await harness.plane.store.commit(Change("", (), puts))
    with pytest.raises(Conflict, match="its maximum"):
        await subscriptions.create_subscription(
            harness.plane, CALLER, SubscriptionRequest("n", SubscriptionKind.PULL)
        )


@agent_test
async def test_another_bound_of_a_later_release_reaches_who_has_some_already(harness):
    ask = subscriptions.create_subscription
    with patched(subscriptions, SUBSCRIPTIONS_MAX=1):
        await ask(harness.plane, CALLER, SubscriptionRequest("one", SubscriptionKind.PULL))
    with patched(subscriptions, SUBSCRIPTIONS_MAX=2):
        await ask(harness.plane, CALLER, SubscriptionRequest("two", SubscriptionKind.PULL))
        with pytest.raises(Conflict, match="has 2 subscriptions"):
            await ask(harness.plane, CALLER, SubscriptionRequest("three", SubscriptionKind.PULL))


@pytest.mark.parametrize("with_guard", [True, False])
def test_many_at_once_take_no_more_places_than_there_are(with_guard):
    """Without the quota's row each would count what the others are about to add to."""
    agent_test(many_at_once)(with_guard=with_guard)


async def many_at_once(harness, with_guard):
    async def slowly(plane, tenant):
        place = await reserve(plane, tenant)
        await asyncio.sleep(0.01)  # so that all have counted before one is made
        return place if with_guard else ChangePart()

    reserve = subscriptions._reserve
    ask = subscriptions.create_subscription
    for number in range(SUBSCRIPTIONS_MAX - 10):
        await ask(harness.plane, CALLER, SubscriptionRequest(f"n{number}", SubscriptionKind.PULL))
    with patched(subscriptions, _reserve=slowly):
        asked = (
            ask(harness.plane, CALLER, SubscriptionRequest(f"m{n}", SubscriptionKind.PULL))
            for n in range(50)
        )
        answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, Conflict)]
    assert {one.code for one in refused} <= {"quota_exceeded"}
    assert (len(refused) == 40) is with_guard
    assert (len(await harness.rows(SubscriptionRecord)) == SUBSCRIPTIONS_MAX) is with_guard


@agent_test
async def test_a_secret_that_was_sealed_with_a_lost_key_is_rotated_and_the_new_one_signs(
    harness, tmp_path
):
    plane = replace(harness.plane, seal=LocalSeal(tmp_path / "secrets.key"))
    asked = SubscriptionRequest("n", SubscriptionKind.WEBHOOK, target="https://hooks.example/in")
    view, _ = await subscriptions.create_subscription(plane, CALLER, asked)
    moved = replace(harness.plane, seal=LocalSeal(tmp_path / "other.key"))
    row = await subscriptions.get_subscription_row(moved, CALLER, view.id)
    with pytest.raises(Invalid, match=f"tenure subscription rotate {view.id}"):
        subscriptions.secrets_of(moved, row)
    _, new = await subscriptions.rotate_secret(moved, CALLER, view.id)
    row = await subscriptions.get_subscription_row(moved, CALLER, view.id)
    assert subscriptions.secrets_of(moved, row) == (secret_of(new),)


@agent_test
async def test_of_two_who_change_a_secret_at_once_both_do_one_after_the_other(harness, tmp_path):
    plane = replace(harness.plane, seal=LocalSeal(tmp_path / "secrets.key"))
    asked = SubscriptionRequest("n", SubscriptionKind.WEBHOOK, target="https://hooks.example/in")
    view, first = await subscriptions.create_subscription(plane, CALLER, asked)
    get, rotated = subscriptions.get_subscription_row, list[str]()

    async def meanwhile(*args):
        row = await get(*args)
        if not rotated:
            rotated.append("once")
            rotated.append((await subscriptions.rotate_secret(plane, CALLER, view.id))[1])
        return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscriptions, "get_subscription_row", meanwhile)
        _, last = await subscriptions.rotate_secret(plane, CALLER, view.id)
    row = await get(plane, CALLER, view.id)
    assert row.revision == 3
    keys = [subscriptions.secret_text(key) for key in subscriptions.secrets_of(plane, row)]
    assert keys == [last, rotated[1]]
    assert first not in keys


HOOK = SubscriptionRequest("n", SubscriptionKind.WEBHOOK, target="https://hooks.example/in")
ONCE = "once"


@agent_test
async def test_the_same_key_makes_one_subscription_and_shows_the_same_secret(harness, tmp_path):
    plane = replace(harness.plane, seal=LocalSeal(tmp_path / "secrets.key"))
    ask = subscriptions.create_subscription
    asked = (ask(plane, CALLER, HOOK, idempotency_key=ONCE) for _ in range(20))
    answers = await asyncio.gather(*asked)
    assert len({(view.id, secret) for view, secret in answers}) == 1
    assert len(await harness.rows(SubscriptionRecord)) == len(await harness.rows(CursorRecord)) == 1
    lines = [row for row in await harness.rows(AuditRecord) if row.action == "subscription.create"]
    assert len(lines) == 1
    with pytest.raises(Conflict, match="another request") as refused:
        await ask(plane, CALLER, HOOK._replace(name="m"), idempotency_key=ONCE)
    assert refused.value.code == "idempotency_mismatch"
    other = Caller(TENANT, "another", Role.OPERATOR)
    assert (await ask(plane, other, HOOK, idempotency_key=ONCE))[0].id != answers[0][0].id
    assert (await ask(plane, CALLER, HOOK))[0].id != answers[0][0].id


@agent_test
async def test_the_same_key_finds_what_took_the_last_place(harness):
    reserve, ask = subscriptions._reserve, subscriptions.create_subscription
    asked, made = SubscriptionRequest("n", SubscriptionKind.PULL), list[str]()

    async def meanwhile(plane, tenant):
        if not made:
            made.append("asked")
            made.append((await ask(plane, CALLER, asked, idempotency_key=ONCE))[0].id)
        return await reserve(plane, tenant)

    with patched(subscriptions, SUBSCRIPTIONS_MAX=1, _reserve=meanwhile):
        view, _ = await ask(harness.plane, CALLER, asked, idempotency_key=ONCE)
    assert made == ["asked", view.id]


@agent_test
async def test_a_key_is_good_for_a_day_and_makes_nothing_again_after_a_delete(harness):
    ask, asked = subscriptions.create_subscription, SubscriptionRequest("n", SubscriptionKind.PULL)
    first, _ = await ask(harness.plane, CALLER, asked, idempotency_key=ONCE)
    await subscriptions.delete_subscription(harness.plane, CALLER, first.id)
    again, _ = await ask(harness.plane, CALLER, asked, idempotency_key=ONCE)
    assert again == first
    assert await harness.rows(SubscriptionRecord) == []
    scope = (TENANT, CALLER.principal, "subscriptions", ONCE)
    older = Set("idempotency", scope, {"answer": None})  # as the release before has written it
    await harness.plane.store.commit(Change("", (), (older,)))
    with pytest.raises(NotFound, match="deleted since"):
        await ask(harness.plane, CALLER, asked, idempotency_key=ONCE)
    told = {"at": harness.plane.store.now() - IDEMPOTENCY_SECONDS - 1.0}
    await harness.plane.store.commit(Change("", (), (Set("idempotency", scope, told),)))
    second, _ = await ask(harness.plane, CALLER, asked, idempotency_key=ONCE)
    assert second.id != first.id


@agent_test
async def test_a_rotation_that_is_told_twice_leaves_the_secret_that_receivers_know(
    harness, tmp_path
):
    plane = replace(harness.plane, seal=LocalSeal(tmp_path / "secrets.key"))
    ask = subscriptions.create_subscription
    view, known = await ask(plane, CALLER, HOOK, idempotency_key=ONCE)
    rotate = subscriptions.rotate_secret
    told = (rotate(plane, CALLER, view.id, idempotency_key=ONCE) for _ in range(5))
    new = {secret for _, secret in await asyncio.gather(*told)}
    row = await subscriptions.get_subscription_row(plane, CALLER, view.id)
    keys = [subscriptions.secret_text(key) for key in subscriptions.secrets_of(plane, row)]
    assert keys == [*new, known]
    again = await ask(plane, CALLER, HOOK, idempotency_key=ONCE)
    assert (again[0].id, again[1]) == (view.id, "")  # who rotated it has been told the new one
    with pytest.raises(NotFound, match="there is no subscription"):
        await rotate(plane, CALLER, "0" * 32, idempotency_key="another")
    await subscriptions.delete_subscription(plane, CALLER, view.id)
    assert (await ask(plane, CALLER, HOOK, idempotency_key=ONCE))[1] == known
    late, secret = await rotate(plane, CALLER, view.id, idempotency_key=ONCE)
    assert (late.id, {secret}) == (view.id, new)
    rows = str(await harness.rows(IdempotencyRecord))
    assert known not in rows
    assert secret not in rows


@agent_test
async def test_its_letters_go_with_it(harness):
    bad = await harness.create_ready("bad")
    await harness.create_ready("good")
    sink = Sink()
    sink.refuses.add(bad)
    asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target=sink.name, from_start=True)
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    buses = {SubscriptionKind.NATS: LocalBus({sink.name: sink.take})}
    await deliver_all(Relay(harness.plane, buses=buses))
    shown = await subscriptions.get_subscription(harness.plane, CALLER, view.id)
    assert shown.parked == 1
    assert len(await harness.rows(LetterRecord)) > 1
    await subscriptions.delete_subscription(harness.plane, CALLER, view.id)
    assert await harness.rows(LetterRecord) == [] == await harness.rows(ParkedRecord)
    assert view.id not in [row.destination for row in await harness.rows(CursorRecord)]


@agent_test
async def test_one_with_a_parked_stream_was_not_told_yet(harness):
    uid = await harness.create_ready()
    asked = SubscriptionRequest("mine", SubscriptionKind.NATS, target="mine", agent="alpha")
    view, _ = await subscriptions.create_subscription(harness.plane, CALLER, asked)
    row = await subscriptions.get_subscription_row(harness.plane, CALLER, view.id)
    assert await subscriptions.has_received_all(harness.plane, row)
    parked: Row = {"attempts": 1, "due_at": 0.0, "why": "no", "since": 0.0}
    await harness.plane.store.commit(Change("", (), (Put("parked", (view.id, uid), parked),)))
    assert not await subscriptions.has_received_all(harness.plane, row)
    reads, _ = await subscriptions.create_subscription(
        harness.plane, CALLER, SubscriptionRequest("reads", SubscriptionKind.PULL)
    )
    row = await subscriptions.get_subscription_row(harness.plane, CALLER, reads.id)
    assert await subscriptions.has_received_all(harness.plane, row)


@agent_test
async def test_a_place_is_given_back_only_of_an_agent_that_is_not_there(harness):
    uid = await harness.create_ready()
    event = Outgoing("1", TENANT, uid, "", "agent.deleted", 1, b"{}")
    react = REACTIONS["release-quota"].react
    await react(harness.plane, event)
    assert len(await harness.rows(ReservationRecord)) == 1
    (kept,) = await harness.rows(ReservationRecord)
    await harness.run_verb("delete")
    assert await harness.rows(ReservationRecord) == []
    await react(harness.plane, event)
    harness.disk.tables.rows["reservation"][key_of(kept)] = dict_of(kept)  # as if that were lost
    await react(harness.plane, event)
    assert await harness.rows(ReservationRecord) == []
