"""Events over HTTP: pages, streams that resume and end with their token, subscriptions, letters."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tenure.adapters.seal.local import LocalSeal
from tenure.app.agents import commands as agents
from tenure.app.agents.spec import read_spec
from tenure.app.events import subscriptions
from tenure.app.events.delivery_rows import put_letter
from tenure.app.operations import reads
from tenure.app.tenancy import tokens
from tenure.core.records import ParkedRecord, SubscriptionRecord
from tenure.core.roles import Caller, Role
from tenure.core.subscription import SubscriptionKind
from tenure.faces.http.server import Listen, serving
from tenure.ports.store import Change, Put, Set
from tests.unit.support.api_client import ADMIN, api_test
from tests.unit.support.webhook_secrets import secret_of

CALLER = Caller("default", "admin", Role.ADMIN)
STREAM = {"accept": "text/event-stream"}
HOOK = {"name": "billing", "kind": "webhook", "target": "https://billing.example/hooks"}


async def create_ready(face, name="alpha"):
    spec = read_spec({"name": name, "runtime": {"command": ["agent"]}})
    asked = await agents.create_agent(face.plane, CALLER, spec)
    done = await reads.wait(face.plane, "default", asked.id, seconds=5)
    assert done.state == "SUCCEEDED"
    return done.agent


@asynccontextmanager
async def follow(face, address, *, token=ADMIN, headers=None, query=""):
    """The events of a stream as they come, as (position, type, event)."""
    url = f"{address}/v1/events{query}"
    given = {**STREAM, "authorization": f"Bearer {token}", **(headers or {})}
    async with aiohttp.ClientSession() as session, session.get(url, headers=given) as answer:
        assert answer.status == 200, await answer.text()

        async def come():
            position, name = 0, ""
            async for line in answer.content:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "id":
                    position = int(value)
                elif field == "event":
                    name = value
                elif field == "data":
                    yield position, name, json.loads(value)

        yield come()


@api_test
async def test_a_page_of_events_is_the_tenants_own(face):
    uid = await create_ready(face)
    page = (await face.ask("GET", "/v1/events?limit=1000", token="viewer")).json
    assert page["next"] is None
    assert {one["subject"] for one in page["items"]} == {uid}
    assert [int(one["sequence"]) for one in page["items"]] == list(range(1, len(page["items"]) + 1))
    other = (await face.ask("GET", "/v1/events", token="stranger")).json
    assert other["items"] == []
    some = (await face.ask("GET", "/v1/events?type=agent.*&agent=alpha&limit=1")).json
    assert [one["type"] for one in some["items"]] == ["tenure.agent.creating"]
    rest = (await face.ask("GET", f"/v1/events?type=agent.*&after={some['next']}")).json
    assert [one["type"] for one in rest["items"]] == ["tenure.agent.ready"]
    assert (await face.ask("GET", "/v1/events?agent=nobody")).status == 404
    assert (await face.ask("GET", "/v1/events?type=agent.nonsense")).status == 400
    assert (await face.ask("GET", "/v1/events?after=x")).status == 400
    odd = {"last-event-id": "x"}
    assert (await face.ask("GET", "/v1/events", headers=odd)).status == 400
    far = str(1 << 59)  # as a store of many transactions counts
    for asked in ({"query": f"after={far}"}, {"headers": {"last-event-id": far}}):
        assert (await face.ask("GET", "/v1/events", **asked)).status == 200
    for place in (10**12, 2**63 - 1):  # positions of PostgreSQL have up to 19 digits
        assert (await face.ask("GET", f"/v1/events?after={place}")).status == 200
    assert (await face.ask("GET", f"/v1/events?after={2**63}")).status == 400


@api_test
async def test_a_stream_tells_what_was_and_what_comes_and_resumes(face):
    first = await create_ready(face)
    async with serving(face.http_state, Listen(port=0)) as address:
        async with follow(face, address, query="?type=agent.*") as come:
            told = [await anext(come) for _ in range(2)]
            assert [name for _, name, _ in told] == [
                "tenure.agent.creating", "tenure.agent.ready",
            ]  # fmt: skip
            second = await create_ready(face, "beta")
            told += [await anext(come) for _ in range(2)]
        assert [event["subject"] for *_, event in told] == [first] * 2 + [second] * 2
        last = {"last-event-id": str(told[1][0])}
        async with follow(face, address, headers=last, query="?type=agent.*") as come:
            again = [await anext(come) for _ in range(2)]
        assert again == told[2:]
        last = {"last-event-id": told[1][2]["id"]}  # of the event itself, as lists show it
        async with follow(face, address, headers=last, query="?type=agent.*") as come:
            assert [await anext(come) for _ in range(2)] == told[2:]
    for far in (2**63, 10**19):
        headers = {**STREAM, "last-event-id": str(far)}
        assert (await face.ask("GET", "/v1/events", headers=headers)).status == 400


@api_test
async def test_a_stream_resumes_after_a_position_of_nineteen_digits(face):
    uid = await create_ready(face)
    told = {
        "tenant": CALLER.tenant, "agent": uid, "operation": "o", "type": "agent.ready", "at": 1.0,
        "body": "{}",
    }  # fmt: skip
    far = [2**63 - 3, 2**63 - 2]
    puts = tuple(Put("outbox", (n,), {**told, "sequence": n}) for n in far)
    assert await face.plane.store.commit(Change("", (), puts)) is None
    async with serving(face.http_state, Listen(port=0)) as address:
        last = {"last-event-id": str(far[0])}
        async with follow(face, address, headers=last) as come:
            position, *_ = await anext(come)
        assert int(position) == far[1]


@api_test
async def test_a_position_beyond_all_events_makes_nobody_deaf(face):
    await create_ready(face)
    far = str(2**63 - 1)
    page = (await face.ask("GET", f"/v1/events?after={far}", token="stranger")).json
    assert int(page["position"]) == await face.plane.store.newest_event()
    last = {"last-event-id": far}
    async with (
        serving(face.http_state, Listen(port=0)) as address,
        follow(face, address, headers=last) as come,
    ):
        asked = subscriptions.SubscriptionRequest(
            "billing", SubscriptionKind.NATS, target="billing"
        )
        view, _ = await subscriptions.create_subscription(face.plane, CALLER, asked)
        uid = await create_ready(face, "beta")
        assert (await anext(come))[2]["subject"] == uid
    beyond = await face.plane.feed.after(view.position, limit=100)
    assert {row.agent for row in beyond} == {uid}


@api_test
async def test_a_stream_ends_when_its_token_is_revoked_and_tells_nothing_more(face):
    await create_ready(face)
    admin = await tokens.authenticate(face.plane, ADMIN)
    view, token = await tokens.create_token(face.plane, admin, principal="eve", role=Role.VIEWER)
    async with serving(face.http_state, Listen(port=0)) as address:
        async with follow(face, address, token=token) as come:
            await anext(come)
            await tokens.revoke_token(face.plane, admin, view.id)
            revoked = (await face.ask("GET", "/v1/events?limit=1000")).json["position"]
            await create_ready(face, "beta")
            async with asyncio.timeout(30):
                late = [position async for position, *_ in come]
        assert all(position <= int(revoked) for position in late)
        assert face.http_state.streams.total() == 0


@api_test
async def test_a_commit_is_told_at_once(face, monkeypatch):
    """By the commit itself, and not by a look from time to time."""
    monkeypatch.setattr("tenure.faces.api.event_stream.POLL_SECONDS", 600.0)
    async with (
        serving(face.http_state, Listen(port=0)) as address,
        follow(face, address, query="?type=operation.accepted") as come,
        asyncio.timeout(30),
    ):
        for _ in range(5):
            await face.accept("make")
            await anext(come)


@api_test
async def test_too_many_streams_are_refused(face, monkeypatch):
    monkeypatch.setattr("tenure.faces.api.event_stream.STREAMS_MAX", 0)
    answer = await face.ask("GET", "/v1/events", headers=STREAM)
    assert (answer.status, answer.json["code"]) == (429, "too_many_streams")


@api_test
async def test_a_subscription_lives_and_its_secret_is_shown_once(face, tmp_path_factory):
    object.__setattr__(face.plane, "seal", LocalSeal(tmp_path_factory.mktemp("s") / "key"))
    answer = await face.ask("POST", "/v1/subscriptions", HOOK)
    assert answer.status == 201, answer.body
    new = answer.json
    assert new["secret"].startswith("whsec_")
    one = f"/v1/subscriptions/{new['id']}"
    shown = await face.ask("GET", one, token="viewer")
    assert shown.json == {k: v for k, v in new.items() if k != "secret"}
    listed = await face.ask("GET", "/v1/subscriptions", token="viewer")
    assert new["secret"] not in listed.body.decode()
    row = await face.plane.store.find(SubscriptionRecord, (new["id"],))
    assert subscriptions.secrets_of(face.plane, row) == (secret_of(new["secret"]),)
    assert new["secret"].removeprefix("whsec_") not in str(row)
    turned = (await face.ask("POST", f"{one}:rotate")).json
    row = await face.plane.store.find(SubscriptionRecord, (new["id"],))
    assert subscriptions.secrets_of(face.plane, row) == tuple(
        secret_of(secret) for secret in (turned["secret"], new["secret"])
    )
    for method, path in (("GET", one), ("DELETE", one), ("POST", f"{one}:rotate"),
                         ("GET", f"{one}/dead-letters"), ("GET", f"{one}/acknowledgements"),
                         ("POST", f"{one}/dead-letters:replay")):  # fmt: skip
        assert (await face.ask(method, path, token="stranger")).status == 404
    assert (await face.ask("DELETE", one, token="viewer")).status == 403
    assert (await face.ask("DELETE", one)).json["name"] == "billing"
    assert (await face.ask("GET", one)).status == 404
    lines = (await face.ask("GET", "/v1/audit", token="admin")).json["items"]
    done = [line["action"] for line in lines if line["target"] == new["id"]]
    assert done == ["subscription.create", "subscription.rotate", "subscription.delete"]


@api_test
async def test_a_subscription_takes_an_idempotency_key(face):
    body, key = {"name": "reads", "kind": "pull"}, {"Idempotency-Key": "once"}
    first = await face.ask("POST", "/v1/subscriptions", body, headers=key)
    again = await face.ask("POST", "/v1/subscriptions", body, headers=key)
    assert (again.status, again.json) == (201, first.json)
    other = await face.ask("POST", "/v1/subscriptions", {**body, "name": "x"}, headers=key)
    assert (other.status, other.json["code"]) == (422, "idempotency_mismatch")
    assert "operation" not in other.json
    assert len((await face.ask("GET", "/v1/subscriptions")).json["items"]) == 1


@pytest.mark.parametrize("change", [
    {"target": "http://billing.example/"}, {"target": "https://127.0.0.1/"}, {"name": "Billing"},
    {"types": ["agent.nonsense"]}, {"kind": "pull"}, {"kind": "nats", "target": "a b"},
    {"kind": "fax"}, {"agent": "nobody"},
], ids=str)  # fmt: skip
def test_what_makes_no_sense_is_refused(change, tmp_path):
    @api_test
    async def scenario(face):
        answer = await face.ask("POST", "/v1/subscriptions", {**HOOK, **change})
        assert answer.status in {400, 404}, answer.body
        assert (await face.ask("GET", "/v1/subscriptions")).json["items"] == []

    scenario(tmp_path=tmp_path)


@api_test
async def test_a_destination_that_fails_says_when_it_is_tried_and_a_replay_tries_it_now(face):
    body = {"name": "there", "kind": "nats", "target": "there"}
    name = (await face.ask("POST", "/v1/subscriptions", body)).json["id"]
    one = f"/v1/subscriptions/{name}"
    assert (await face.ask("GET", one)).json["next_try"] is None
    later = face.plane.store.now() + 300.0
    fails = {"attempts": 9, "due_at": later, "why": "refused", "since": 1.0}
    await face.plane.store.commit(Change("", (), (Set("cursor", (name,), fails),)))
    assert (await face.ask("GET", one)).json["next_try"] == later
    await create_ready(face)
    alone = {"agent": "alpha"}
    assert (await face.ask("POST", f"{one}/dead-letters:replay", alone)).json == {"agents": 0}
    assert (await face.ask("GET", one)).json["next_try"] == later
    assert (await face.ask("POST", f"{one}/dead-letters:replay")).json == {"agents": 0}
    assert (await face.ask("GET", one)).json["next_try"] <= face.plane.store.now()


@api_test
async def test_letters_are_listed_replayed_and_discarded(face):
    body = {"name": "there", "kind": "nats", "target": "there"}
    name = (await face.ask("POST", "/v1/subscriptions", body)).json["id"]
    uid = await create_ready(face)
    rows = [row for row in await face.plane.store.list_events(limit=100) if row.agent == uid]
    parked = {"attempts": 3, "due_at": None, "why": "it said no", "since": 1.0}
    writes = [put_letter(name, row) for row in rows]
    writes.append(Put("parked", (name, uid), parked))
    assert await face.plane.store.commit(Change("", (), tuple(writes))) is None
    one = f"/v1/subscriptions/{name}"
    assert (await face.ask("GET", one)).json["parked"] == 1
    first = (await face.ask("GET", f"{one}/dead-letters?limit=2")).json
    rest = (await face.ask("GET", f"{one}/dead-letters?after={first['next']}")).json
    told = [(letter["why"], letter["attempts"]) for letter in first["items"] + rest["items"]]
    behind = (
        "it waits for an earlier event of the same agent",
        0,
    )  # an agent's events leave one after the other
    assert told == [("it said no", 3), *[behind] * (len(rows) - 1)]
    found = [letter["event"]["sequence"] for letter in first["items"] + rest["items"]]
    assert [int(sequence) for sequence in found] == [row.sequence for row in rows]
    by_name = await face.ask("GET", "/v1/subscriptions/there")
    assert by_name.json["detail"].startswith("there is no subscription with this id; an id is 32")
    for odd in ("x", "/", "a/x", f"a/{10**18}"):
        assert (await face.ask("GET", f"{one}/dead-letters?after={odd}")).status == 400
    assert (await face.ask("POST", f"{one}/dead-letters:replay")).json == {"agents": 1}
    due = await face.plane.store.find(ParkedRecord, (name, uid))
    assert due.due_at is not None
    for verb in ("replay", "discard"):
        for nobody in ("0" * 32, "alhpa"):
            other = await face.ask("POST", f"{one}/dead-letters:{verb}", {"agent": nobody})
            assert (other.status, other.json["code"]) == (404, "not_found")
    beta = {"agent": await create_ready(face, "beta")}
    assert (await face.ask("POST", f"{one}/dead-letters:discard", beta)).json == {"agents": 0}
    alpha = {"agent": "alpha"}
    assert (await face.ask("POST", f"{one}/dead-letters:discard", alpha)).json == {"agents": 1}
    assert (await face.ask("GET", f"{one}/dead-letters")).json["items"] == []


@api_test
async def test_a_tenant_is_strict_when_its_admin_says_so(face):
    assert (await face.ask("GET", "/v1/tenant")).json == {"strict": False, "missing": []}
    assert (await face.ask("PUT", "/v1/tenant", {"strict": True})).status == 403
    told = await face.ask("PUT", "/v1/tenant", {"strict": True}, token="admin")
    assert told.json == {"strict": True, "missing": []}
    other = await face.ask("GET", "/v1/tenant", token="stranger")
    assert other.json["strict"] is False
