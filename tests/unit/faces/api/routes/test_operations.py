"""Operations over HTTP: lists, waits, the stream of progress, and an operator's exits."""

import asyncio
import json
from typing import Any

import pytest

from tenure.app.operations import commands as operations
from tenure.app.tenancy import tokens
from tenure.core.roles import Role
from tenure.faces.api import operation_stream
from tenure.testing.operators import by
from tests.unit.support.api_client import ADMIN, api_test


def events(body: bytes) -> list[tuple[str, str, dict[str, Any]]]:
    """The events of a stream: id, name, data."""
    told = []
    for block in body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if lines:
            told.append((lines.get("id", ""), lines["event"], json.loads(lines["data"])))
    return told


@api_test
async def test_operations_are_listed_by_pages(face):
    made = [await face.accept("make") for _ in range(5)]
    waits = await face.accept("waits")
    await face.until(waits, "WAITING")
    seen, after = [], ""
    for size in (2, 2, 2):
        page = (await face.ask("GET", f"/v1/operations?limit=2&after={after}")).json
        assert len(page["items"]) == size
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
    assert seen == [*made, waits]
    assert (await face.ask("GET", f"/v1/operations?after={after}")).json == {
        "items": [],
        "next": None,
    }
    page = (await face.ask("GET", "/v1/operations?state=WAITING&state=STUCK")).json
    assert [item["id"] for item in page["items"]] == [waits]
    assert page["items"][0]["done"] is False
    odd = await face.ask("GET", "/v1/operations?state=ASLEEP")
    assert (odd.status, odd.json["field"]) == (400, "state")


@api_test
async def test_an_operation_is_shown_with_its_steps(face):
    name = await face.accept("make")
    told = (await face.ask("GET", f"/v1/operations/{name}/wait?seconds=30")).json
    assert (told["id"], told["state"], told["done"]) == (name, "SUCCEEDED", True)
    assert [(step["name"], step["state"]) for step in told["steps"]] == [
        ("identity", "PRESENT"),
        ("access", "PRESENT"),
    ]
    assert (await face.ask("GET", f"/v1/operations/{name}")).json == told


@api_test
async def test_a_wait_ends_when_its_time_is_over_or_the_process_is_to_end(face):
    name = await face.accept("waits")
    await face.until(name, "WAITING")
    told = await face.ask("GET", f"/v1/operations/{name}/wait?seconds=0.01")
    assert told.json["state"] == "WAITING"
    for seconds in ("60.5", "-1", "x"):
        odd = await face.ask("GET", f"/v1/operations/{name}/wait?seconds={seconds}")
        assert (odd.status, odd.json["field"]) == (400, "seconds")
    face.http_state.stopping.set()
    async with asyncio.timeout(30):
        told = await face.ask("GET", f"/v1/operations/{name}/wait?seconds=60")
    assert told.json["state"] == "WAITING"


@api_test
async def test_a_cancel_is_accepted_and_may_be_waited_for(face):
    name = await face.accept("waits")
    await face.until(name, "WAITING")
    told = await face.ask(
        "POST", f"/v1/operations/{name}:cancel", headers={"prefer": "respond-async, wait=30"}
    )
    assert (told.status, told.json["state"]) == (202, "COMPENSATED")
    assert told.headers["location"] == f"/v1/operations/{name}"
    assert told.headers["preference-applied"] == "wait=30"
    again = await face.ask("POST", f"/v1/operations/{name}:cancel")
    assert (again.status, again.json["code"], again.json["operation"]) == (409, "ended", name)


@pytest.mark.parametrize(
    ("prefer", "preference_applied"),
    [
        ("wait=100", "wait=60"),
        ("wait=0", "wait=0"),
        ("WAIT = 3; a=b", "wait=3"),
        ("return=minimal", None),
        ("wait=soon", None),
        ("await=3", None),
        ("wait=-1", None),
    ],
)
def test_a_preference_that_makes_no_sense_is_ignored(tmp_path, prefer, preference_applied):
    @api_test
    async def test(face):
        name = await face.accept("sticks")
        await face.until(name, "STUCK")
        told = await face.ask("POST", f"/v1/operations/{name}:abandon", headers={"prefer": prefer})
        assert told.status == 202
        assert told.headers.get("preference-applied") == preference_applied

    test(tmp_path=tmp_path)


@api_test
async def test_an_operator_can_retry_adopt_mark_absent_and_abandon(face):
    made = await face.accept("make")
    await face.until(made, "SUCCEEDED")
    for verb in (":retry", ":abandon", "/steps/identity:adopt", "/steps/identity:mark-absent"):
        told = await face.ask("POST", f"/v1/operations/{made}{verb}")
        assert (told.status, told.json["code"]) == (409, "ended")

    async def stuck() -> str:
        name = await face.accept("sticks")
        await face.until(name, "STUCK")
        return f"/v1/operations/{name}"

    path = await stuck()
    told = await face.ask("POST", f"{path}/steps/identity:adopt", {})
    assert (told.status, told.json["code"]) == (409, "not_stuck")
    assert (await face.ask("POST", f"{path}/steps/unheard-of:adopt", {})).status == 404
    told = await face.ask("POST", f"{path}/steps/charge:adopt", {"result": {"paid": [1, None]}})
    assert (told.status, told.json["state"]) == (202, "SUCCEEDED")
    assert told.json["steps"][1]["result"] == {"paid": [1, None]}
    path = await stuck()
    assert (await face.ask("POST", f"{path}/steps/charge:mark-absent")).status == 202
    path = await stuck()
    assert (await face.ask("POST", f"{path}:retry")).status == 202
    path = await stuck()
    told = await face.ask("POST", f"{path}:abandon")
    assert (told.status, told.json["state"]) == (202, "ABANDONED")


@api_test
async def test_a_result_that_cannot_be_kept_is_refused(face):
    name = await face.accept("sticks")
    await face.until(name, "STUCK")
    path = f"/v1/operations/{name}/steps/charge:adopt"
    told = await face.ask("POST", path, {"result": "x" * 70_000})
    assert (told.status, told.json["code"]) == (400, "limit_exceeded")


@api_test
async def test_progress_is_streamed_as_it_happens_with_its_way_back(face):
    name = await face.accept("waits")
    following = asyncio.ensure_future(face.ask("GET", f"/v1/operations/{name}/events"))
    await face.until(name, "WAITING")
    await asyncio.sleep(0.05)
    assert not following.done()
    await operations.cancel(face.plane, by("a test"), name)
    async with asyncio.timeout(30):
        told = await following
    assert told.headers["content-type"] == "text/event-stream"
    seen = events(told.body)
    assert [(number, event) for number, event, _ in seen] == [
        ("1", "operation.accepted"),
        ("2", "operation.step_done"),
        ("3", "operation.compensating"),
        ("4", "operation.step_undone"),
        ("5", "operation.compensated"),
        ("", "settled"),
    ]
    assert seen[2][2]["body"]["why"] == "cancelled by a test"
    assert seen[-1][2]["state"] == "COMPENSATED"


@api_test
async def test_a_stream_goes_on_after_the_last_event_seen(face):
    name = await face.accept("make")
    await face.until(name, "SUCCEEDED")
    path = f"/v1/operations/{name}/events"
    whole = events((await face.ask("GET", path)).body)
    rest = events((await face.ask("GET", path, headers={"last-event-id": "2"})).body)
    assert rest == whole[2:]
    for far in ("999", "9" * 18):  # as long as the document says it may be
        end = events((await face.ask("GET", path, headers={"last-event-id": far})).body)
        assert [event for _, event, _ in end] == ["settled"]
    for odd in ("x", "-1", "9" * 19, "1" * 20, "", "1-", "1-x", "1-a b"):
        told = await face.ask("GET", path, headers={"last-event-id": odd})
        assert (told.status, told.json["field"]) == (400, "Last-Event-Id"), odd


@api_test
async def test_a_stream_beats_while_nothing_happens_and_ends_with_the_process(face, monkeypatch):
    monkeypatch.setattr(operation_stream, "HEARTBEAT_SECONDS", 0.02)
    name = await face.accept("waits")
    await face.until(name, "WAITING")
    following = asyncio.ensure_future(face.ask("GET", f"/v1/operations/{name}/events"))
    await asyncio.sleep(1.5)  # many beats, also on a machine with much else to do
    face.http_state.stopping.set()
    async with asyncio.timeout(30):
        told = await following
    assert told.body.count(b": heartbeat\n\n") >= 2
    assert "settled" not in {event for _, event, _ in events(told.body)}


@api_test
async def test_a_stream_ends_when_its_token_is_revoked(face):
    name = await face.accept("waits")
    await face.until(name, "WAITING")
    admin = await tokens.authenticate(face.plane, ADMIN)
    view, token = await tokens.create_token(face.plane, admin, principal="leaver", role=Role.VIEWER)
    path = f"/v1/operations/{name}/events"
    real, let_in = face.http_state.authenticate, asyncio.Event()

    async def authenticate(text):
        caller = await real(text)
        let_in.set()
        return caller

    face.http_state.authenticate = authenticate
    following = asyncio.ensure_future(face.ask("GET", path, token=token))
    await let_in.wait()
    await tokens.revoke_token(face.plane, admin, view.id)
    told = await asyncio.wait_for(following, 30)
    assert told.status == 200
    assert b"settled" not in told.body
