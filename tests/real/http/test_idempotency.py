"""Idempotency keys on PostgreSQL: the matrix over the route table that SQLite has in tests/unit."""

import asyncio

import pytest

from tests.unit.support.api_client import face
from tests.unit.support.idempotency_checks import check_concurrent, check_killed, check_repeated
from tests.unit.support.idempotent_requests import CASES


@pytest.mark.parametrize("check", [check_repeated, check_concurrent, check_killed])
def test_a_key_has_one_effect_and_one_answer_on_postgresql(check, tmp_path, postgres_url):
    async def main():
        wrong = []
        async with face(tmp_path, store=postgres_url) as one:
            for number, name in enumerate(CASES):
                wrong += await check(one, name, f"agent-{number}")
        return wrong

    assert asyncio.run(main()) == []
