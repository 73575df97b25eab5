"""What every route has in common: who may ask, how a path is found, what is refused."""

import asyncio
import logging
from dataclasses import replace

import pytest
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from tenure.core.errors import CommitUnknown, Defect, StoreClosed, StoreError
from tenure.core.roles import Role
from tenure.faces.http import openapi, server
from tenure.faces.http.body import BODY_BYTES_MAX
from tenure.faces.http.face import Face as HttpFace
from tenure.faces.http.problems import PROBLEMS
from tenure.ports.bus import DeliveryVerdict
from tenure.ports.store import Change, Put
from tenure.testing.patches import patched
from tests.unit.support.api_client import api_test

OPEN = {"/livez", "/readyz"}
ABSENT = "0" * 32
OTHERS = {
    "agent": "nobody",
    "operation": ABSENT,
    "step": "nowhere",
    "token": ABSENT,
    "subscription": ABSENT,
    "finding": ABSENT,
}


def paths():
    return [(r, r.path.format(**OTHERS)) for r in server.ROUTES]


@api_test
async def test_everything_but_health_needs_a_token(face):
    for route, path in paths():
        for token in ("", "nonsense"):
            answer = await face.ask(route.method, path, token=token)
            assert (answer.status == 401) == (path not in OPEN), path
            if answer.status == 401:
                assert answer.json["code"] == "unauthenticated"
                assert answer.headers["www-authenticate"].startswith("Bearer")


@api_test
async def test_every_route_asks_for_its_role(face):
    for route, path in paths():
        for role in Role:
            if route.role is not None:
                answer = await face.ask(route.method, path, {} if route.body else None, token=role)
                enough = role.may(route.role)
                assert (answer.status == 403) == (not enough), (path, role)
                assert answer.status not in {401, 500}, (path, role, answer)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic b3BlcmF0b3I6", "operator", "Bearer operator extra",
     "Bearer operator, Bearer admin", "Bearer \xe9"],
)  # fmt: skip
def test_only_a_bearer_token_is_a_token(tmp_path, header):
    @api_test
    async def test(face):
        answer = await face.ask("GET", "/v1/operations", headers={"authorization": header})
        assert answer.status == 401

    test(tmp_path=tmp_path)


@api_test
async def test_the_scheme_is_written_in_any_case_and_given_once(face):
    odd = {"authorization": f"bEARER {face.tokens['viewer']}"}
    good = await face.ask("GET", "/v1/operations", headers=odd)
    assert good.status == 200
    twice = await face.ask("GET", "/v1/operations", several=(("authorization", "Bearer admin"),))
    assert (twice.status, twice.json["field"]) == (400, "Authorization")


@api_test
async def test_what_belongs_to_others_looks_like_what_is_not_there(face):
    theirs = await face.accept("make", tenant="elsewhere")
    await face.plane.engine.wait(theirs, 1)
    ours = await face.accept("make")
    for route in server.ROUTES:
        if "operation" in route.parameters:
            seen = []
            for name in (theirs, "f" * 32):
                path = route.path.format(**{**OTHERS, "operation": name})
                answer = await face.ask(
                    route.method, path, {} if route.body else None, token="admin"
                )
                body = answer.body.replace(name.encode(), b"")
                seen.append((answer.status, answer.headers, body))
            assert seen[0] == seen[1], route.path
            assert seen[0][0] == 404
    listed = await face.ask("GET", "/v1/operations")
    assert [item["id"] for item in listed.json["items"]] == [ours]
    assert (await face.ask("GET", f"/v1/operations/{theirs}", token="stranger")).status == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/operations/", "/v1/operations//", "//v1/operations", "/V1/operations",
     f"/v1/operations/{ABSENT}/", f"/v1/operations/{ABSENT}:unheard-of",
     f"/v1/operations/{ABSENT}:", f"/v1/operations/{ABSENT}\n", "/v1/operations/..",
     "/v1/operations/é", "/v1/operations/a\x00b",
     f"/v1/operations/{ABSENT.upper()}x", f"/v1/operations/{ABSENT}/steps", "/livez/x"],
)  # fmt: skip
def test_a_path_that_is_not_in_the_table_is_a_problem(tmp_path, path):
    @api_test
    async def test(face):
        for method in ("GET", "POST", "DELETE"):
            answer = await face.ask(method, path)
            assert answer.status in {404, 405}
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json["status"] == answer.status

    test(tmp_path=tmp_path)


@api_test
async def test_another_method_is_refused_with_those_that_would_do(face):
    answer = await face.ask("PATCH", "/v1/operations")
    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    answer = await face.ask("OPTIONS", f"/v1/operations/{ABSENT}:cancel", token="")
    assert (answer.status, answer.headers["allow"], answer.body) == (204, "OPTIONS, POST", b"")


@api_test
async def test_head_answers_as_get_without_the_body(face):
    whole = await face.ask("GET", "/v1/operations")
    head = await face.ask("HEAD", "/v1/operations")
    assert (head.status, head.headers, head.body) == (whole.status, whole.headers, b"")
    head = await face.ask("HEAD", "/v1/operations?limit=0")
    assert (head.status, head.body) == (400, b"")


@api_test
async def test_a_query_of_a_route_that_takes_none_is_refused_by_its_name(face):
    answer = await face.ask("GET", "/livez?verbose=1")
    assert (answer.status, answer.json["field"]) == (400, "verbose")


ADOPT = f"/v1/operations/{ABSENT}/steps/nowhere:adopt"


@api_test
async def test_a_body_over_a_mebibyte_is_refused_however_it_is_sent(face):
    said = await face.ask("POST", ADOPT, {}, headers={"content-length": str(BODY_BYTES_MAX + 1)})
    piece = b" " * 65_536
    chunks = [piece] * (BODY_BYTES_MAX // len(piece) + 1)
    sent = await face.ask(
        "POST", ADOPT, chunks=chunks, headers={"content-type": "application/json"}
    )
    for answer in (said, sent):
        assert (answer.status, answer.json["code"]) == (413, "body_too_large")
        assert answer.headers["connection"] == "close"
    bad = await face.ask("POST", ADOPT, {}, headers={"content-length": "-1"})
    assert (bad.status, bad.json["field"]) == (400, "Content-Length")


@api_test
async def test_only_json_is_read(face):
    for kind in ("text/plain", "", "application/json; charset=latin-1", "application/jsonp"):
        answer = await face.ask("POST", ADOPT, {}, headers={"content-type": kind})
        assert (answer.status, answer.json["field"]) == (415, "Content-Type"), kind
    for kind in ("application/json", 'Application/JSON; charset="UTF-8"'):
        answer = await face.ask("POST", ADOPT, {}, headers={"content-type": kind})
        assert answer.status == 404, kind
    answer = await face.ask("POST", ADOPT)
    assert answer.status == 404, "a body that may be left out was left out"


@api_test
async def test_a_body_where_none_is_expected_is_refused(face):
    answer = await face.ask("POST", f"/v1/operations/{ABSENT}:cancel", {})
    assert (answer.status, answer.json["code"]) == (400, "unexpected_body")


@api_test
async def test_a_caller_who_leaves_half_way_is_no_error(face, caplog):
    sent: list[object] = []
    bearer = f"Bearer {face.tokens['operator']}".encode()

    async def disconnect():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": ADOPT, "query_string": b"", "root_path": "",
        "headers": [(b"authorization", bearer), (b"content-length", b"10")],
    }  # fmt: skip
    await face.app(scope, disconnect, send)
    assert sent == []
    assert not caplog.records


@api_test
async def test_our_own_bug_tells_the_caller_an_id_and_no_more(face, caplog):
    for bug in (ZeroDivisionError("a secret"), Defect("a secret")):

        async def broken(_, bug=bug):
            raise bug

        kept, face.http_state.authenticate = face.http_state.authenticate, broken
        caplog.clear()
        answer = await face.ask("GET", "/v1/operations")
        face.http_state.authenticate = kept
        assert (answer.status, answer.json["code"]) == (500, "internal")
        assert b"secret" not in answer.body
        found = answer.json["detail"].split()[2]
        assert found in caplog.text
        assert "a secret" in caplog.text


@api_test
async def test_a_store_that_refuses_is_told_with_when_to_ask_again(face):
    async def raise_closed(_):
        raise StoreClosed("the store was closed")

    face.http_state.authenticate = raise_closed
    answer = await face.ask("GET", "/v1/operations")
    assert (answer.status, answer.json["code"]) == (503, "store_closed")
    assert answer.headers["retry-after"] == "1"


@api_test
async def test_what_the_store_says_is_for_the_log_and_not_for_the_caller(face, caplog):
    said = "The store postgresql://me@db:5432/mine (schema ours) cannot be used now: it is away."

    async def away(_):
        raise StoreError(said)

    face.http_state.authenticate = away
    told = await face.ask("GET", "/v1/agents")
    assert (told.status, told.json["code"]) == (503, "store")
    assert told.json["detail"] == ("Nothing was written; retry. The control plane's log says more.")
    assert f"GET /v1/agents: {said}" in caplog.text


@api_test
async def test_after_a_commit_of_unknown_outcome_the_face_stops(face, caplog):
    caplog.set_level(logging.CRITICAL)

    async def lose_connection(_):
        raise CommitUnknown(f"EIO. The next start shows whether operation {'c' * 32} was accepted.")

    face.http_state.authenticate = lose_connection
    answer = await face.ask("GET", "/v1/operations")
    assert (answer.status, answer.json["code"]) == (503, "commit_unknown")
    assert answer.json["operation"] == "c" * 32
    assert face.http_state.stopping.is_set()
    assert isinstance(face.http_state.unknown_commit, CommitUnknown)
    assert (await face.ask("GET", "/readyz")).status == 503


@api_test
async def test_it_is_ready_when_the_store_answers_and_the_engine_takes_work(face):
    assert (await face.ask("GET", "/readyz", token="")).json == {"status": "ready"}
    why = "Temporal cannot be reached (connection refused)"
    with patched(type(face.plane.engine), outage=why):  # what is accepted waits: it is still ready
        answer = await face.ask("GET", "/readyz", token="")
        assert (answer.status, answer.json) == (200, {"status": "ready", "engine": why})
        assert b"tenure_engine_up 0.0\n" in (await face.ask("GET", "/metrics", token="admin")).body
    assert b"tenure_engine_up 1.0\n" in (await face.ask("GET", "/metrics", token="admin")).body
    face.http_state.ready = False
    answer = await face.ask("GET", "/readyz", token="")
    assert (answer.status, answer.json["code"]) == (503, "starting")
    face.http_state.ready = True
    await face.plane.engine.stop()
    assert (await face.ask("GET", "/readyz", token="")).status == 503
    assert (await face.ask("GET", "/livez", token="")).json == {"status": "alive"}


@api_test
async def test_it_says_so_while_who_serves_the_providers_cannot_be_asked(face):
    face.http_state.plane = replace(
        face.http_state.plane, provider_outage=lambda: "process 12 is stopped"
    )
    answer = await face.ask("GET", "/readyz", token="")
    told = {"status": "ready", "providers": "process 12 is stopped"}
    assert (answer.status, answer.json) == (200, told)


@api_test
async def test_a_store_that_does_not_answer_makes_it_unready(face, monkeypatch):
    from tenure.faces.api.routes import plane as routes

    monkeypatch.setattr(routes, "STORE_SECONDS", 0.01)

    async def never(*_):
        await asyncio.sleep(60)

    monkeypatch.setattr(type(face.plane.store), "find", never)
    answer = await face.ask("GET", "/readyz", token="")
    said = "the store does not answer; the log says more"
    assert (answer.status, answer.json["detail"]) == (503, said)
    monkeypatch.setattr(face.plane.store, "write_problem", never)
    answer = await face.ask("GET", "/readyz", token="")
    assert (answer.status, answer.json["detail"]) == (503, said)


@api_test
async def test_a_store_that_takes_no_records_makes_it_unready(face, monkeypatch):
    """The questions of many probes are one change, and its answer is good for a while."""
    from tenure.faces.api.routes import plane as routes

    monkeypatch.setattr(routes, "STORE_SECONDS", 0.2)
    changes, causes, answer = list[Change](), list[str](), asyncio.Event()

    async def commit(change):
        changes.append(change)
        await answer.wait()
        raise StoreError("The store postgresql://somewhere cannot be used now: it is read-only.")

    async def write_problem():
        causes.append("its disk is full")
        return causes[-1]

    async def is_refused():
        told = await face.ask("GET", "/readyz", token="")
        said = "the store answers but accepts no writes: its disk is full"
        return (told.status, told.json["detail"]) == (503, said)

    with monkeypatch.context() as patch:
        patch.setattr(face.plane.store, "commit", commit)
        patch.setattr(face.plane.store, "write_problem", write_problem)
        assert all(await asyncio.gather(*(is_refused() for _ in range(3))))
        assert len(changes) == 1
        answer.set()
        await asyncio.sleep(0.01)
        assert await is_refused()
        assert await is_refused()
        assert len(changes) == 3  # what was refused is asked again
        assert len(causes) == 1  # the cause is good for a while
        assert all(
            change.is_new_work for change in changes
        )  # as those of new work, which need room
    assert (await face.ask("GET", "/readyz", token="")).status == 200
    monkeypatch.setattr(face.plane.store, "commit", commit)
    monkeypatch.setattr(face.plane.store, "write_problem", write_problem)
    assert (await face.ask("GET", "/readyz", token="")).status == 200
    monkeypatch.setattr("tenure.app.safety.write_probe.FRESH_SECONDS", 0.0)
    assert await is_refused()


@api_test
async def test_it_is_unready_with_the_cause_when_a_commit_was_lost(face, monkeypatch):
    async def write_problem():
        return "the file system of its file is read-only"

    monkeypatch.setattr(face.plane.store, "write_problem", write_problem)
    face.http_state.stop_after_unknown_commit(
        CommitUnknown("The store failed while it committed (disk I/O error).")
    )
    answer = await face.ask("GET", "/readyz", token="")
    assert (answer.status, answer.json["code"]) == (503, "stopping")
    assert answer.json["detail"] == (
        "the process is stopping, because the store failed during a commit:"
        " the file system of its file is read-only"
    )


@api_test
async def test_metrics_count_what_is_open_and_what_was_answered(face):
    waiting = await face.accept("waits")
    await face.until(waiting, "WAITING")
    face.http_state.step_times.observe("waits", "identity", seconds=0.002)
    face.http_state.step_times.observe("waits", "identity", seconds=99.0)
    await face.ask("GET", "/v1/operations")
    told = (await face.ask("GET", "/metrics", token="admin")).body.decode()
    for line in (
        'tenure_operations{state="WAITING"} 1.0',
        'tenure_operations{state="STUCK"} 0.0',
        'tenure_http_requests_total{method="GET",route="/v1/operations",status="200"} 1.0',
        'tenure_step_seconds_bucket{le="0.005",plan="waits",step="identity"} 1.0',
        'tenure_step_seconds_bucket{le="+Inf",plan="waits",step="identity"} 2.0',
        'tenure_step_seconds_count{plan="waits",step="identity"} 2.0',
    ):
        assert line in told.splitlines(), line
    theirs = (await face.ask("GET", "/metrics", token="stranger")).body.decode()
    assert "tenure_deliver" not in theirs
    assert 'tenure_operations{state="WAITING"} 0.0' in theirs
    for ours in ("tenure_http_requests", "tenure_step_seconds", "tenure_invocations_in_flight"):
        assert ours not in theirs, "what others do is not told"


@api_test
async def test_metrics_tell_of_deliveries_by_the_kind_of_destination(face):
    body = {"name": "there", "kind": "nats", "target": "there"}
    name = (await face.ask("POST", "/v1/subscriptions", body)).json["id"]
    counts, now = face.plane.deliveries, face.plane.store.now()
    counts.add("nats", DeliveryVerdict.DELIVERED, 1.5)
    counts.add("nats", DeliveryVerdict.REFUSED, 9.0)
    counts.retries["nats"] += 1
    counts.trimmed["bound"] += 7
    counts.missed["webhook"] += 5
    parked = {"attempts": 3, "due_at": None, "why": "it said no", "since": now - 600.0}
    said = {"tenant": "default", "operation": "o", "type": "agent.ready", "at": now, "body": "{}",
            "sequence": 1}  # fmt: skip
    writes = [Put("letter", (name, "a", position), said) for position in (1, 2)]
    writes.append(Put("parked", (name, "a"), parked))
    assert await face.plane.store.commit(Change("", (), tuple(writes))) is None
    told = (await face.ask("GET", "/metrics", token="admin")).body.decode().splitlines()
    for line in (
        'tenure_deliveries_total{kind="nats",result="delivered"} 1.0',
        'tenure_deliveries_total{kind="nats",result="refused"} 1.0',
        'tenure_deliveries_total{kind="webhook",result="unavailable"} 0.0',
        'tenure_delivery_retries_total{kind="nats"} 1.0',
        'tenure_delivery_seconds_total{kind="nats"} 1.5',
        'tenure_events_trimmed_total{reason="age"} 0.0',
        'tenure_events_trimmed_total{reason="bound"} 7.0',
        'tenure_events_missed_total{kind="nats"} 0.0',
        'tenure_events_missed_total{kind="webhook"} 5.0',
        'tenure_dead_letters{kind="nats"} 2.0',
        'tenure_dead_letters{kind="reaction"} 0.0',
        'tenure_destinations_failing{kind="nats"} 1.0',
        'tenure_delivery_lag_seconds{kind="webhook"} 0.0',
    ):
        assert line in told, line
    (lag,) = (line for line in told if line.startswith('tenure_delivery_lag_seconds{kind="nats"}'))
    assert 600.0 <= float(lag.split()[1]) < 660.0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("delete", "/v1/agents/{agent}"),
        ("post", "/v1/agents/{agent}:suspend"),
        ("post", "/v1/agents/{agent}:stop"),
        ("post", "/v1/subscriptions/{subscription}/acknowledgements"),
    ],
)
def test_what_tells_an_operation_that_is_open_may_meet_a_newer_releases(method, path):
    told = openapi.document(server.ROUTES, version="")["paths"][path][method]
    assert "plan_unknown" in told["responses"]["409"]["description"]


@api_test
async def test_the_document_is_served(face):
    told = await face.ask("GET", "/openapi.json", token="viewer")
    assert told.json["openapi"].startswith("3.1")
    assert set(told.json["paths"]) == {route.path for route in server.ROUTES}


def test_every_declared_problem_is_in_the_table():
    for route in server.ROUTES:
        assert set(route.codes()) <= set(PROBLEMS), route.path


@api_test
async def test_a_face_that_is_listed_is_served_beside_the_others(face):
    async def hello(_: object) -> Response:
        return Response("hello from another face")

    other = HttpFace("other", foreign_routes=lambda _: [StarletteRoute("/other", hello)])
    assert (await face.ask("GET", "/other", token="")).status == 404
    face.app = server.build(face.http_state, faces=[*server.FACES, other])
    assert (await face.ask("GET", "/other", token="")).body == b"hello from another face"
    assert (await face.ask("GET", "/livez", token="")).status == 200
    assert "/other" not in (await face.ask("GET", "/openapi.json")).json["paths"]
