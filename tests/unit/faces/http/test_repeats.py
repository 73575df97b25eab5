"""Every mutating route takes an Idempotency-Key: a matrix over the route table."""

import asyncio

import pytest

from tenure.app.operations import idempotency
from tenure.app.operations.idempotency import IdempotentRequest, RequestStart
from tenure.core.limits import IDEMPOTENCY_SECONDS
from tenure.core.records import (
    AcknowledgementRecord,
    EdgeRecord,
    FindingRecord,
    IdempotencyRecord,
    ParkedRecord,
    SubscriptionRecord,
    TokenRecord,
    key_of,
)
from tenure.core.records.table import table_of
from tenure.faces.http.openapi import document
from tenure.faces.http.route_table import Repeat
from tenure.faces.http.server import ROUTES
from tenure.ports.store import Change, Drop, Put, Set
from tests.unit.support.api_client import face
from tests.unit.support.idempotency_checks import (
    RequestKilled,
    check_concurrent,
    check_killed,
    check_repeated,
    route_of,
    send,
)
from tests.unit.support.idempotent_requests import CASES, count_audit_lines

EVERY = pytest.mark.parametrize("name", CASES)
STORED = [name for name in CASES if route_of(name).repeat is Repeat.ANSWER]
SECRETS = {"secret", "token", "registration_access_token"}
"""Fields that show one."""


def run_check(tmp_path, check):
    async def main():
        async with face(tmp_path) as one:
            return await check(one)

    return asyncio.run(main())


def test_every_mutating_route_takes_a_key_or_says_why_not():
    taken = {f"{one.method} {one.path}" for one in ROUTES if one.idempotent}
    assert taken == set(CASES), "each has a case here"
    exempt = {one.path: one.no_key for one in ROUTES if one.no_key}
    assert list(exempt) == ["/v1/agents/{agent}/invocations"]
    assert all(one.idempotent or one.no_key for one in ROUTES if one.mutates)
    assert not [one.path for one in ROUTES if one.idempotent and one.raw_body], "it is not read"
    paths = document(ROUTES, version="0")["paths"]
    for one in ROUTES:
        headers = [each["name"] for each in paths[one.path][one.method.lower()]["parameters"]]
        assert ("Idempotency-Key" in headers) == one.idempotent, one.path


def test_an_answer_with_a_secret_is_declared_as_one():
    for one in ROUTES:
        shown = SECRETS & set(getattr(one.answer, "__struct_fields__", ()))
        assert one.shows_secret == bool(one.mutates and shown), one.path


@EVERY
def test_the_same_key_and_request_have_one_effect_and_one_answer(tmp_path, name):
    assert run_check(tmp_path, lambda one: check_repeated(one, name, "alpha")) == []


@EVERY
def test_equal_requests_at_the_same_time_have_one_effect_and_one_answer(tmp_path, name):
    assert run_check(tmp_path, lambda one: check_concurrent(one, name, "alpha")) == []


@EVERY
def test_a_request_that_was_killed_is_finished_by_the_repeated_one(tmp_path, name):
    assert run_check(tmp_path, lambda one: check_killed(one, name, "alpha")) == []


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].owner_only])
def test_the_same_key_of_another_tenant_is_another_key(tmp_path, name):
    async def check(one):
        wrong = await check_repeated(one, name, "alpha", caller="admin")
        return wrong + await check_repeated(one, name, "alpha", caller="stranger")

    assert run_check(tmp_path, check) == []


@pytest.mark.parametrize("name", STORED)
def test_a_stored_answer_outlives_its_subject_and_no_secret_lies_open(tmp_path, name):
    async def check(one):
        subject = await CASES[name].prepare(one, "admin", "alpha")
        first = await send(one, name, subject, "once")
        (row,) = await one.plane.store.list_rows(IdempotencyRecord, {"key": "once"}, limit=2)
        assert row.route == name
        for field in SECRETS & set(first.json):
            assert first.json[field] not in str(row)
            assert first.json[field].rpartition(".")[2] not in str(row)
            assert '"sealed":true' in row.answer
        one.providers["identity"].things.clear()
        for record in (SubscriptionRecord, FindingRecord, AcknowledgementRecord, EdgeRecord):
            await drop_rows(one.plane.store, record)
        again = await send(one, name, subject, "once")
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["content-type"] == first.headers["content-type"]
        scope = key_of(row)
        early = Set("idempotency", scope, {"at": row.at - IDEMPOTENCY_SECONDS - 1})
        assert await one.plane.store.commit(Change("", (), (early,))) is None
        await send(one, name, subject, "once")
        left = await one.plane.store.list_rows(IdempotencyRecord, {"key": "once"}, limit=2)
        assert all(each.at >= row.at for each in left), "its day was over"

    run_check(tmp_path, check)


async def drop_rows(store, record):
    rows = await store.list_rows(record, {}, limit=100)
    drops = tuple(Drop(table_of(record).name, key_of(row)) for row in rows)
    assert await store.commit(Change("", (), drops)) is None


def test_a_refused_request_stores_nothing(tmp_path):
    async def check(one):
        headers = {"idempotency-key": "k"}
        for status, token, body in (
            (403, "operator", {"most": 1}),
            (401, "nobody", {"most": 1}),
            (400, "admin", {"x": 1}),
            (400, "admin", {"most": -1}),
        ):
            answer = await one.ask("PUT", "/v1/quotas/agents", body, token=token, headers=headers)
            assert answer.status == status, answer.body
        assert await one.plane.store.list_rows(IdempotencyRecord, {}, limit=9) == []
        path = "/v1/quotas/agents"
        done = await one.ask("PUT", path, {"most": 1}, token="admin", headers=headers)
        assert done.status == 200

    run_check(tmp_path, check)


def test_without_a_place_for_secrets_a_key_is_refused_and_nothing_is_done(tmp_path):
    async def check(one):
        body, headers = {"principal": "p", "role": "viewer"}, {"idempotency-key": "k"}
        answer = await one.ask("POST", "/v1/tokens", body, token="admin", headers=headers)
        assert (answer.status, answer.json["code"]) == (400, "invalid")
        assert await one.plane.store.count_rows(TokenRecord, {"principal": "p"}) == 0

    async def main():
        async with face(tmp_path, seals=False) as one:
            await check(one)

    asyncio.run(main())


def test_letters_that_were_parked_after_a_killed_discard_are_left_by_the_repeated_one(tmp_path):
    name = "POST /v1/subscriptions/{subscription}/dead-letters:discard"

    async def check(one):
        subject = await CASES[name].prepare(one, "admin", "alpha")
        place = subject.path.split("/")[3]

        async def dies(*_args, **_kwargs):
            raise RequestKilled

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IdempotentRequest, "finish", dies)
            with pytest.raises(RequestKilled):
                await send(one, name, subject, "k")
        later = {"attempts": 1, "due_at": None, "why": "no", "since": one.plane.store.now() + 1}
        put = Put("parked", (place, "a"), later)
        assert await one.plane.store.commit(Change("", (), (put,))) is None
        assert (await send(one, name, subject, "k")).status == 200
        assert await one.plane.store.find(ParkedRecord, (place, "a")) is not None
        assert await count_audit_lines(one, "letters.discard", place) == 1

    run_check(tmp_path, check)


# --- the matrix catches what it is for ------------------------------------------------------------


@EVERY
def test_a_route_that_ignores_the_key_is_caught(tmp_path, name, monkeypatch):
    monkeypatch.setattr(IdempotentRequest, "has_key", property(lambda _: False))
    assert run_check(tmp_path, lambda one: check_repeated(one, name, "alpha")) != []


@EVERY
def test_a_fingerprint_that_ignores_the_request_is_caught(tmp_path, name, monkeypatch):
    monkeypatch.setattr(idempotency, "fingerprint", lambda _: "the same")
    monkeypatch.setattr("tenure.faces.http.route_table.fingerprint", lambda _: "the same")
    complaints = run_check(tmp_path, lambda one: check_repeated(one, name, "alpha"))
    only_one = name in {"POST /v1/plane:confirm", "POST /v1/keys:rotate"}
    assert bool(complaints) != only_one, "they can be asked for one thing only"


REPEATABLE = {
    "DELETE /v1/tokens/{token}",
    "POST /v1/subscriptions/{subscription}/acknowledgements",
    "POST /v1/subscriptions/{subscription}/dead-letters:discard",
}
"""Their second time succeeds, and changes nothing."""
IN_ONE_COMMIT = [
    "POST /v1/plane:confirm",
    "POST /v1/agents/{agent}/edges",
    "POST /v1/tokens",
    "PUT /v1/quotas/agents",
    "PUT /v1/tenant",
    "POST /v1/findings/{finding}:resolve",
    "DELETE /v1/subscriptions/{subscription}",
]


@pytest.mark.parametrize("name", IN_ONE_COMMIT)
def test_a_key_in_a_commit_of_its_own_is_caught(tmp_path, name, monkeypatch):
    async def commit(_self, plane, change, _result):
        return await plane.store.commit(change)

    monkeypatch.setattr(IdempotentRequest, "commit", commit)
    assert run_check(tmp_path, lambda one: check_killed(one, name, "alpha")) != []


@pytest.mark.parametrize("name", sorted({*STORED} - {*IN_ONE_COMMIT} - REPEATABLE))
def test_a_request_that_is_not_begun_before_its_effect_is_caught(tmp_path, name, monkeypatch):
    async def begin(_self, plane, change, chosen_value=""):
        if change.writes:
            await plane.store.commit(change)
        return RequestStart(chosen_value, plane.store.now())

    monkeypatch.setattr(IdempotentRequest, "begin", begin)
    assert run_check(tmp_path, lambda one: check_killed(one, name, "alpha")) != []
