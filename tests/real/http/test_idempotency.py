"""Idempotency keys on PostgreSQL: the matrix over the route table that SQLite has in tests/unit."""

import asyncio

import pytest

from tenure.adapters.seal.local import LocalSeal
from tests.unit.support.api_client import PLANS, face
from tests.unit.support.idempotency_checks import at_the_same_time, killed, repeated
from tests.unit.support.idempotent_requests import CASES


@pytest.mark.parametrize("check", [repeated, at_the_same_time, killed])
def test_a_key_has_one_effect_and_one_answer_on_postgresql(check, tmp_path, postgres_url):
    async def main():
        seal, wrong = LocalSeal(tmp_path / "secrets.key"), []
        async with face(tmp_path, *PLANS, store=postgres_url, seal=seal) as one:
            for number, name in enumerate(CASES):
                wrong += await check(one, name, f"agent-{number}")
        return wrong

    assert asyncio.run(main()) == []
