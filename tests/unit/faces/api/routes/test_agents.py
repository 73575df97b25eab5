"""Agents over HTTP: the lifecycle, idempotency, conditions, dry runs, invocations."""

import asyncio
from typing import Any

import pytest

from tests.unit.faces.http.test_invoke import GOOD, captures
from tests.unit.support.api_client import FaceClient, api_test

WAIT = {"prefer": "wait=30"}


def spec(name: str = "adder", **more: object) -> dict[str, Any]:
    return {"name": name, "runtime": {"command": ["true"]}, **more}


async def create(face: FaceClient, name: str = "adder", **more: object) -> dict[str, Any]:
    told = await face.ask("POST", "/v1/agents", spec(name, **more), headers=WAIT)
    assert (told.status, told.json["state"]) == (202, "SUCCEEDED"), told
    found: dict[str, Any] = (await face.ask("GET", f"/v1/agents/{name}")).json
    return found


@api_test
async def test_an_agent_is_created_suspended_resumed_and_deleted(face):
    told = await face.ask("POST", "/v1/agents", spec(), headers=WAIT)
    assert (told.status, told.json["state"]) == (202, "SUCCEEDED")
    assert told.headers["location"] == f"/v1/operations/{told.json['id']}"
    assert told.headers["preference-applied"] == "wait=30"
    made = (await face.ask("GET", "/v1/agents/adder")).json
    assert (made["name"], made["state"], made["uid"]) == ("adder", "READY", told.json["agent"])
    assert (await face.ask("GET", f"/v1/agents/{made['uid']}")).json == made
    held = (await face.ask("GET", "/v1/agents/adder/resources")).json["items"]
    assert sorted(one["slot"] for one in held) == ["access", "credentials", "identity", "runtime"]
    for verb, state in ((":suspend", "SUSPENDED"), (":resume", "READY"), (":stop", "SUSPENDED")):
        told = await face.ask("POST", f"/v1/agents/adder{verb}", headers=WAIT)
        assert (told.status, told.json["state"]) == (202, "SUCCEEDED"), (verb, told)
        assert (await face.ask("GET", "/v1/agents/adder")).json["state"] == state
    told = await face.ask("DELETE", "/v1/agents/adder?drain_seconds=0", headers=WAIT)
    assert (told.status, told.json["state"]) == (202, "SUCCEEDED")
    assert (await face.ask("GET", "/v1/agents/adder")).status == 404
    assert (await face.ask("GET", f"/v1/agents/{made['uid']}")).json["state"] == "DELETED"
    assert not any(thing for one in face.providers.values() for thing in one.things)


@api_test
async def test_a_create_that_is_refused_undoes_itself_and_says_why(face):
    told = await face.ask("POST", "/v1/agents", spec(roles=["refuse-access"]), headers=WAIT)
    assert (told.status, told.json["state"]) == (202, "COMPENSATED")
    assert "access refuses this spec" in told.json["error"]
    assert (await face.ask("GET", "/v1/agents/adder")).json["state"] == "CREATE_FAILED"


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "missing_field", "name"),
        (spec("Adder"), "invalid_field", "name"),
        (spec("a" * 64), "invalid_field", "name"),
        (spec("adder\n"), "invalid_field", "name"),
        (spec("-a"), "invalid_field", "name"),
        (spec(retention="forever"), "invalid_field", "retention"),
        (spec(colour="red"), "unknown_field", "colour"),
        ({"name": "a", "runtime": {"comand": ["x"]}}, "unknown_field", "runtime.comand"),
        ({"name": "a", "runtime": {}}, "invalid", "runtime"),
        (spec(labels={"a": 1}), "invalid_field", "labels[...]"),
        (
            spec(credentials=[{"audience": "https://a", "ttl_seconds": 1000}]),
            "invalid_field",
            "credentials[0].ttl_seconds",
        ),
        (
            {"name": "a", "runtime": {"command": ["x"], "network": {"egress": []}}},
            "invalid",
            "runtime.network",
        ),
        (spec(parent="nobody"), "not_found", ""),
    ],
)
def test_a_spec_that_does_not_fit_is_refused_by_its_field(tmp_path, body, code, field):
    @api_test
    async def test(face):
        told = await face.ask("POST", "/v1/agents", body)
        assert (told.json["code"], told.json.get("field", "")) == (code, field), told
        assert (await face.ask("GET", "/v1/agents")).json["items"] == []
        assert (await face.ask("GET", "/v1/operations")).json["items"] == []

    test(tmp_path=tmp_path)


@api_test
async def test_of_fifty_creates_of_one_name_one_wins(face):
    told = await asyncio.gather(*(face.ask("POST", "/v1/agents", spec()) for _ in range(50)))
    assert sorted(one.status for one in told) == [202] + [409] * 49
    assert {one.json["code"] for one in told if one.status == 409} == {"name_taken"}


@api_test
async def test_the_same_key_and_body_get_the_same_operation(face):
    key = {"idempotency-key": "k-1"}
    told = await asyncio.gather(
        *(face.ask("POST", "/v1/agents", spec(), headers=key) for _ in range(50))
    )
    assert {one.status for one in told} == {202}
    assert len({one.json["id"] for one in told}) == 1
    shuffled = dict(reversed(spec().items()))
    again = await face.ask("POST", "/v1/agents", shuffled, headers=key)
    assert again.json["id"] == told[0].json["id"]
    other = await face.ask("POST", "/v1/agents", spec("other"), headers=key)
    assert (other.status, other.json["code"]) == (422, "idempotency_mismatch")
    assert other.json["operation"] == told[0].json["id"]
    theirs = await face.ask("POST", "/v1/agents", spec(), headers=key, token="stranger")
    assert theirs.status == 202
    assert theirs.json["id"] != told[0].json["id"]
    someone = await face.ask("POST", "/v1/agents", spec("mine"), headers=key, token="admin")
    assert someone.status == 202, "another principal has keys of its own"


@api_test
async def test_a_key_answers_with_the_old_operation_after_a_delete(face):
    key = {"idempotency-key": "once", **WAIT}
    first = await face.ask("POST", "/v1/agents", spec(), headers=key)
    await face.ask("DELETE", "/v1/agents/adder", headers=WAIT)
    late = await face.ask("POST", "/v1/agents", spec(), headers=key)
    assert late.json["id"] == first.json["id"]
    assert (await face.ask("GET", "/v1/agents/adder")).status == 404


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb"])
def test_an_odd_idempotency_key_is_refused(tmp_path, key):
    @api_test
    async def test(face):
        told = await face.ask("POST", "/v1/agents", spec(), headers={"idempotency-key": key})
        assert (told.status, told.json["field"]) == (400, "Idempotency-Key")

    test(tmp_path=tmp_path)


@api_test
async def test_a_condition_that_no_longer_holds_changes_nothing(face):
    await create(face)
    etag = (await face.ask("GET", "/v1/agents/adder")).headers["etag"]
    assert etag.startswith('"')
    stale = await face.ask("DELETE", "/v1/agents/adder", headers={"if-match": '"0-NEVER"'})
    assert (stale.status, stale.json["code"]) == (412, "precondition_failed")
    weak = await face.ask("DELETE", "/v1/agents/adder", headers={"if-match": f"W/{etag}"})
    assert (weak.status, weak.json["field"]) == (400, "If-Match")
    assert (await face.ask("GET", "/v1/agents/adder")).headers["etag"] == etag
    held = await face.ask("POST", "/v1/agents/adder:suspend", headers={"if-match": etag, **WAIT})
    assert held.status == 202
    assert (await face.ask("GET", "/v1/agents/adder")).headers["etag"] != etag
    again = await face.ask("POST", "/v1/agents/adder:resume", headers={"if-match": etag})
    assert again.status == 412
    any_ = await face.ask("POST", "/v1/agents/adder:resume", headers={"if-match": "*"})
    assert any_.status == 202


@api_test
async def test_a_dry_run_shows_the_plan_and_does_nothing(face):
    told = await face.ask("POST", "/v1/agents?dry_run=true", spec())
    assert (told.status, told.json["kind"]) == (200, "create_agent")
    assert [step["name"] for step in told.json["steps"]][:3] == ["identity", "access", "runtime"]
    assert told.json["warnings"] == []
    gone = {"name": "gone", "runtime": {"command": ["no-such-program"]}}
    told = await face.ask("POST", "/v1/agents?dry_run=true", gone)
    assert (told.status, told.json["warnings"]) == (200, ["command: there is no such thing"])
    odd = {"name": "odd", "runtime": {"command": ["x"], "network": {"egress": ["a"]}}}
    assert (await face.ask("POST", "/v1/agents?dry_run=true", odd)).status == 400
    assert (await face.ask("GET", "/v1/operations")).json["items"] == []
    assert (await face.ask("DELETE", "/v1/agents/adder?dry_run=true")).status == 404
    await create(face)
    for method, path in (
        ("DELETE", ""),
        ("POST", ":suspend"),
        ("POST", ":stop"),
        ("POST", ":resume"),
    ):
        told = await face.ask(method, f"/v1/agents/adder{path}?dry_run=true")
        assert told.status == 200, path
    assert (await face.ask("GET", "/v1/agents/adder")).json["state"] == "READY"
    odd = await face.ask("POST", "/v1/agents?dry_run=yes", spec())
    assert (odd.status, odd.json["field"]) == (400, "dry_run")


@api_test
async def test_agents_are_listed_by_pages_states_and_labels(face):
    for n in range(5):
        await create(face, f"a{n}", labels={"team": "ops" if n % 2 else "dev", "n": str(n)})
    await face.ask("POST", "/v1/agents/a1:suspend", headers=WAIT)
    seen: list[Any] = []
    after: Any = ""
    while after is not None:
        page = (await face.ask("GET", f"/v1/agents?limit=2&after={after}")).json
        seen += [one["name"] for one in page["items"]]
        after = page["next"]
    assert seen == [f"a{n}" for n in range(5)]

    async def names(query: str) -> list[str]:
        told = (await face.ask("GET", f"/v1/agents?{query}")).json
        return [one["name"] for one in told["items"]]

    assert await names("label=team=ops") == ["a1", "a3"]
    assert await names("label=team%3Dops&label=n=3") == ["a3"]
    assert await names("state=SUSPENDED") == ["a1"]
    assert await names("state=READY&state=SUSPENDED&label=team=ops&limit=1") == ["a1"]
    assert await names("label=n=1&label=n=2") == []
    for odd in ("label=team", "label==x"):
        told = await face.ask("GET", f"/v1/agents?{odd}")
        assert (told.status, told.json["field"]) == (400, "label"), odd
        assert told.json["detail"].endswith("a label is asked for as key=value"), odd
    theirs = await face.ask("GET", "/v1/agents", token="stranger")
    assert theirs.json["items"] == []


@api_test
async def test_an_agent_of_others_looks_like_one_that_is_not_there(face):
    mine = await create(face)
    for path in ("", "/resources", "/logs"):
        for name in ("adder", mine["uid"]):
            told = await face.ask("GET", f"/v1/agents/{name}{path}", token="stranger")
            assert told.status == 404
            absent = await face.ask("GET", f"/v1/agents/nobody{path}", token="stranger")
            assert told.body.replace(name.encode(), b"nobody") == absent.body
    for verb in (":suspend", ":resume", ":stop", "/invocations"):
        told = await face.ask("POST", f"/v1/agents/{mine['uid']}{verb}", token="stranger")
        assert told.status == 404
    assert (await face.ask("DELETE", "/v1/agents/adder", token="stranger")).status == 404
    assert (await face.ask("GET", "/v1/agents/adder")).json == mine


@api_test
async def test_what_an_agent_printed_is_shown(face):
    await create(face)
    assert (await face.ask("GET", "/v1/agents/adder/logs?lines=2")).json == {
        "text": "one line\none line\n",
        "next_offset": None,
    }
    part = await face.ask("GET", "/v1/agents/adder/logs?since=7")
    assert part.json == {"text": "more\n", "next_offset": 12}
    for odd in ("lines=0", "lines=10001", "since=x"):
        assert (await face.ask("GET", f"/v1/agents/adder/logs?{odd}")).status == 400


@api_test
async def test_an_invocation_reaches_an_agent_that_serves_and_no_other(face):
    seen: list[bytes] = []
    serve = captures(seen, GOOD)
    busy: list[int] = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        busy.append(face.plane.in_flight.total())
        await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    runtime = face.providers["runtime"]
    runtime.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    path = "/v1/agents/adder/invocations"
    assert (await face.ask("POST", path, {"a": 1})).status == 404
    runtime.holding = True
    await face.ask("POST", "/v1/agents", spec())
    told = await face.ask("POST", path, {"a": 1})
    assert (told.status, told.json["code"]) == (503, "not_ready")
    assert int(told.headers["retry-after"]) >= 1
    runtime.holding = False
    operation = (await face.ask("GET", "/v1/agents/adder")).json["operation"]
    await face.until(operation, "SUCCEEDED")
    told = await face.ask("POST", path, {"a": 1})
    assert (told.status, told.body) == (201, b"hello")
    assert seen[1] == b'{"a": 1}'
    assert busy == [1]
    assert face.plane.in_flight.total() == 0
    await face.ask("POST", "/v1/agents/adder:suspend", headers=WAIT)
    told = await face.ask("POST", path, {"a": 1})
    assert (told.status, told.json["code"]) == (409, "suspended")
    assert "operation" not in told.json
    assert face.plane.in_flight.total() == 0
    listening.close()


@api_test
async def test_a_verb_that_makes_no_sense_is_a_conflict(face):
    await create(face)
    told = await face.ask("POST", "/v1/agents/adder:resume")
    assert (told.status, told.json["code"]) == (409, "wrong_state")
    assert "READY" in told.json["detail"]
    odd = await face.ask("POST", "/v1/agents/adder:suspend", {"drain_seconds": -1})
    assert (odd.status, odd.json["field"]) == (400, "drain_seconds")
    odd = await face.ask("DELETE", "/v1/agents/adder?retention=burn")
    assert (odd.status, odd.json["field"]) == (400, "retention")


@api_test
async def test_a_full_quota_is_told(face):
    told = await face.ask("PUT", "/v1/quotas/agents", {"most": 1}, token="admin")
    assert told.json == {"kind": "agents", "most": 1, "used": 0}
    await create(face)
    told = await face.ask("POST", "/v1/agents", spec("second"))
    assert (told.status, told.json["code"]) == (429, "quota_exceeded")
    assert "operation" not in told.json
    assert (await face.ask("GET", "/v1/quotas/agents")).json["used"] == 1
    odd = await face.ask("PUT", "/v1/quotas/agents", {"most": -1}, token="admin")
    assert (odd.status, odd.json["field"]) == (400, "most")


@api_test
async def test_a_revoked_token_is_no_good_at_once(face):
    body = {"principal": "ci", "role": "viewer"}
    made = (await face.ask("POST", "/v1/tokens", body, token="admin")).json
    assert (await face.ask("GET", "/v1/agents", token=made["token"])).status == 200
    listed = await face.ask("GET", "/v1/tokens", token="admin")
    assert made["token"] not in listed.body.decode()
    assert made["id"] in {one["id"] for one in listed.json["items"]}
    path = f"/v1/tokens/{made['id']}"
    assert (await face.ask("DELETE", path, token="stranger")).status == 404
    gone = await face.ask("DELETE", path, token="admin")
    assert gone.json["revoked_at"] > 0
    assert (await face.ask("GET", "/v1/agents", token=made["token"])).status == 401


@api_test
async def test_a_token_is_for_ones_own_tenant(face):
    body = {"principal": "x", "role": "admin", "tenant": "default"}
    told = await face.ask("POST", "/v1/tokens", body, token="stranger")
    assert told.status == 404
    for odd, field in (
        ({"principal": "", "role": "viewer"}, "principal"),
        ({"principal": "x", "role": "king"}, "role"),
        ({"principal": "x", "role": "viewer", "seconds": 0}, "seconds"),
        ({"principal": "x", "role": "viewer", "tenant": "A"}, "tenant"),
    ):
        told = await face.ask("POST", "/v1/tokens", odd, token="admin")
        assert (told.status, told.json["field"]) == (400, field)


@api_test
async def test_the_audit_log_tells_who_did_what_and_holds(face):
    await create(face)
    seen: list[Any] = []
    after: Any = ""
    while after is not None:
        told = await face.ask("GET", f"/v1/audit?limit=3&after={after}", token="admin")
        seen += [(one["action"], one["principal"]) for one in told.json["items"]]
        after = told.json["next"]
    assert ("agent.create", "operator-person") in seen
    assert seen[0][0] == "token.create"
    theirs = await face.ask("GET", "/v1/audit", token="stranger")
    assert all(one["principal"] == "stranger" for one in theirs.json["items"])
    verdict = (await face.ask("GET", "/v1/audit/verify", token="admin")).json
    assert (verdict["broken"], verdict["entries"]) == (None, len(seen))
    lost = await face.ask("GET", "/v1/audit/verify?head=unheard-of", token="admin")
    assert lost.json["broken"]["position"] > 0
    assert lost.json["broken"]["head_missing"] is True
    assert (await face.ask("GET", "/v1/audit/verify", token="stranger")).status == 403


@api_test
async def test_an_invocation_that_outlives_the_drain_is_cut_off(face):
    came = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()  # until we are cut off
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    face.providers["runtime"].address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    await create(face)
    asked = asyncio.ensure_future(face.ask("POST", "/v1/agents/adder/invocations", {"a": 1}))
    await came.wait()
    body = {"keep_runtime": True, "drain_seconds": 0.3}
    await face.ask("POST", "/v1/agents/adder:suspend", body, headers=WAIT)
    told = await asyncio.wait_for(asked, 30)
    assert (told.status, told.json["code"]) == (409, "suspended")
    assert face.plane.in_flight.total() == 0
    listening.close()


@api_test
async def test_a_verb_may_be_queued_behind_the_operation_at_work(face):
    made = await face.ask("POST", "/v1/agents", spec())
    told = await face.ask("POST", "/v1/agents/adder:suspend?queue=true")
    assert (told.status, told.json["kind"]) == (202, "suspend_agent")
    full = await face.ask("POST", "/v1/agents/adder:suspend?queue=true")
    assert (full.status, full.json["code"]) == (409, "queue_full")
    assert full.json["operation"] == told.json["id"]
    ended = await face.ask("GET", f"/v1/operations/{told.json['id']}/wait?seconds=5")
    created = await face.ask("GET", f"/v1/operations/{made.json['id']}")
    assert (created.json["state"], ended.json["state"]) == ("SUCCEEDED", "SUCCEEDED")
    assert (await face.ask("GET", "/v1/agents/adder")).json["state"] == "SUSPENDED"
    told = await face.ask("POST", "/v1/agents/adder:stop?queue=true", headers=WAIT)
    assert told.json["state"] == "SUCCEEDED"
