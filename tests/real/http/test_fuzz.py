"""Hostile requests of our own over the whole route table: nothing breaks and nothing leaks."""

import asyncio
import os
import time

import pytest

from proofs.http.fuzz import Complaint, Fuzzer, Party, World
from tenure.adapters.invoker.aiohttp import AiohttpInvoker
from tenure.faces.http import body, query, server
from tenure.faces.http.problems import Problem
from tenure.testing.patches import patched
from tests.unit.support.api_client import FaceClient, face

REQUESTS = int(os.environ.get("TENURE_FUZZ", "50000"))
SEED = int(os.environ.get("TENURE_SEED", "1"))
SHARES = 2
OURS, THEIRS = "okapi3", "zebra7"
GIVEN = {"most": 10**9, "command": ["true"]}
WAIT = {"prefer": "wait=60"}
OWNED = frozenset({"/v1/plane/review"})
"""What the plane's owner, an admin of tenant `default`, is told of everybody before a confirm."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + REQUESTS // 50)]


async def make_world(one: FaceClient) -> World:
    """Two tenants with agents and operations, whose words the other must never see."""
    known: dict[str, list[str]] = {
        "agent": ["nobody"],
        "operation": ["0" * 32],
        "step": ["charge", "identity", "turn"],
        "token": ["0" * 32],
        "subscription": ["0" * 32],
    }
    secrets: dict[str, list[str]] = {OURS: [OURS], THEIRS: [THEIRS]}
    for word, token in ((OURS, "operator"), (THEIRS, "stranger")):
        for n in range(3):
            name = f"{word}-{n}"
            body = {
                "name": name,
                "runtime": {"command": [word]},
                "labels": {word: word},
                "owner": word,
            }
            told = await one.ask("POST", "/v1/agents", body, token=token, headers=WAIT)
            assert told.json["state"] == "SUCCEEDED"
            known["agent"] += [name, told.json["agent"]]
            known["operation"].append(told.json["id"])
            secrets[word] += [told.json["agent"], told.json["id"]]
        tenant = "default" if word is OURS else "elsewhere"
        for plan in ("waits", "sticks"):
            name = await one.accept(plan, tenant=tenant, input={"word": word})
            known["operation"].append(name)
            secrets[word].append(name)
    hidden = {OURS: tuple(secrets[THEIRS]), THEIRS: tuple(secrets[OURS])}
    roles = ("viewer", "operator", "operator")
    parties = [Party(one.tokens[role], hidden[OURS]) for role in roles]
    parties += [Party(one.tokens["admin"], hidden[OURS], shown_all_at=OWNED)]
    parties += [Party(one.tokens["stranger"], hidden[THEIRS])] * 2
    return World(parties, known, tame={"seconds": ("0", "0.001")}, given=GIVEN)


async def run_fuzzer(one: FaceClient, *, seed: int, requests: int) -> None:
    """So many of them are answered as they should be, and enough of them fit."""
    fuzzer = Fuzzer(one.app, server.ROUTES, await make_world(one), problem=Problem, seed=seed)
    begun = time.perf_counter()
    await fuzzer.run(requests)
    took = time.perf_counter() - begun
    print(f"{requests / took:.0f} requests/s, seed {seed}", fuzzer.statuses)
    assert fuzzer.statuses[202] > requests // 500, "too few of them fit"
    assert fuzzer.statuses[200] > requests // 50


@pytest.mark.parametrize("share", range(SHARES))
def test_no_request_breaks_the_face_or_shows_anything_of_others(tmp_path, tally, share):
    async def main() -> None:
        await AiohttpInvoker().load()
        async with face(tmp_path) as one:
            await run_fuzzer(one, seed=SEED * SHARES + share, requests=REQUESTS // SHARES)
        tally.add("fuzz_requests", REQUESTS // SHARES)

    asyncio.run(main())


def test_nor_does_one_on_postgresql_which_refuses_more(tmp_path, tally, postgres_url):
    async def main() -> None:
        await AiohttpInvoker().load()
        async with face(tmp_path, store=postgres_url) as one:
            await run_fuzzer(one, seed=SEED, requests=REQUESTS // 10)
        tally.add("fuzz_requests", REQUESTS // 10)

    asyncio.run(main())


def test_a_face_that_asks_the_store_for_nul_is_found_out(tmp_path, tally, postgres_url):
    """The judge can fail: nothing refuses the character before the store does."""

    async def main() -> None:
        async with face(tmp_path, store=postgres_url) as one:
            world = await make_world(one)
            fuzzer = Fuzzer(one.app, server.ROUTES, world, problem=Problem, seed=SEED)
            with pytest.raises(ExceptionGroup) as found:
                await fuzzer.run(REQUESTS)
            assert found.group_contains(Complaint, match="was asked what it cannot answer")

    def let_through(*_: object) -> None:
        """Everything."""

    with patched(body, refuse_nul=let_through), patched(query, refuse_nul=let_through):
        asyncio.run(main())
    tally.add("ablations")


def test_a_face_that_shows_others_is_found_out(tmp_path):
    """The judge can fail: whoever asks is taken for the other tenant."""

    async def main() -> None:
        async with face(tmp_path) as one:
            world = await make_world(one)
            real = one.http_state.authenticate

            async def mistaken(token: str):
                return (await real(token))._replace(tenant="elsewhere")

            one.http_state.authenticate = mistaken
            fuzzer = Fuzzer(one.app, server.ROUTES, world, problem=Problem)
            with pytest.raises(ExceptionGroup) as found:
                await fuzzer.run(5_000)
            assert found.group_contains(Complaint, match="belongs to another tenant")

    asyncio.run(main())


def test_a_face_that_breaks_is_found_out(tmp_path):
    """The judge can fail: one route answers what its Struct does not say, another breaks."""

    async def main() -> None:
        async with face(tmp_path) as one:
            world = await make_world(one)

            async def broken(_: str):
                raise ZeroDivisionError

            one.http_state.authenticate = broken
            fuzzer = Fuzzer(one.app, server.ROUTES, world, problem=Problem)
            with pytest.raises(ExceptionGroup) as found:
                await fuzzer.run(1_000)
            assert found.group_contains(Complaint, match="500")

    asyncio.run(main())
