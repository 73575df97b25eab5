"""The fault alphabet: each fault does to the world, and to its caller, what its name says."""

import asyncio

import pytest

from tenure.core.errors import OutcomeUnknown, ProviderError, Rejected, Unavailable
from tenure.core.ids import resource_key
from tenure.ports.provider import Presence
from tenure.testing.fakes import FakeProvider, World, ledger
from tenure.testing.faults import ALPHABET, Delays, Fault, FaultPoint, Faults
from tenure.testing.loop import Dead, Node, SeededLoop, run
from tenure.testing.tripwire import CrossingSide, Tripwire

KEY = resource_key("plane", tenant="t", agent="a", generation=1, slot="s", name="n")
DELAYS = Delays()


def fake_with_fault(verb: str, fault: Fault, **kind):
    """A fake whose first call of `verb` is struck, and its world; run by `play`."""

    def make(loop: SeededLoop) -> tuple[FakeProvider, World]:
        world = World(loop)
        faults = Faults({FaultPoint("it", verb, 1): fault})
        return FakeProvider(world, "it", faults=faults, **kind), world

    return make


def play(make, scenario):
    async def main(loop):
        return await scenario(*make(loop))

    return run(0, main)


async def call(coroutine, limit: float = 1.0):
    """How a call ends for a caller with a limit: its value, or the class of its error."""
    try:
        return await asyncio.wait_for(coroutine, limit)
    except (TimeoutError, ProviderError) as error:
        return type(error)


# What the caller hears, and whether it is there at once, after the late time.
ENSURE = {
    Fault.LOST: (TimeoutError, False, False),
    Fault.REPLY_LOST: (TimeoutError, True, True),
    Fault.CUT: (OutcomeUnknown, False, False),
    Fault.BROKE: (OutcomeUnknown, True, True),
    Fault.BUSY: (Unavailable, False, False),
    Fault.DUPLICATED: (dict, True, True),
    Fault.SLOW: (TimeoutError, False, True),
    Fault.SLOWER: (TimeoutError, False, True),
    Fault.SLOWEST: (TimeoutError, False, True),
    Fault.REORDERED: (TimeoutError, False, True),
    Fault.EXISTS: (OutcomeUnknown, False, False),
    Fault.REFUSED: (Rejected, False, False),
    Fault.UNREADY: (dict, True, True),
    Fault.NEVER_READY: (dict, True, True),
    Fault.FOREIGN: (Rejected, False, False),
}


@pytest.mark.parametrize("fault", ALPHABET["ensure"])
def test_a_fault_of_ensure(fault):
    hears, at_once, in_the_end = ENSURE[fault]

    async def scenario(fake, world):
        heard = await call(fake.ensure(KEY, {}))
        assert (heard if isinstance(heard, type) else type(heard)) is hears
        assert bool(world.holds(agent="a")) is at_once
        await world.quiet()
        assert bool(world.holds(agent="a", generation=1, provider="it", key=KEY.text)) is in_the_end
        assert [entry.fault for entry in fake.faults.hits] == [fault]

    play(fake_with_fault("ensure", fault), scenario)


@pytest.mark.parametrize(
    "fault", [Fault.SLOW, Fault.SLOWER, Fault.SLOWEST, Fault.REORDERED, Fault.DUPLICATED]
)
@pytest.mark.parametrize("burns", [True, False])
def test_a_late_arrival_after_a_remove_is_an_orphan_unless_the_key_is_burned(fault, burns):
    async def scenario(fake, world):
        await call(fake.ensure(KEY, {}))
        await fake.remove(KEY)
        assert world.holds() == []
        await world.quiet()
        assert bool(world.holds()) is not burns

    play(fake_with_fault("ensure", fault, burns=burns), scenario)


def test_what_is_duplicated_is_applied_twice():
    async def scenario(fake, world):
        await fake.ensure(KEY, {})
        await world.quiet()
        assert [entry.effect for entry in world.log] == ["made", "kept"]

    play(fake_with_fault("ensure", Fault.DUPLICATED), scenario)

    async def careless(fake, world):
        await fake.ensure(KEY, {})
        await world.quiet()
        assert world.holds()[0].times == 2

    play(fake_with_fault("ensure", Fault.DUPLICATED, idempotent=False), careless)


def test_what_starts_slowly_is_ready_later_or_never():
    async def slowly(fake, world):
        await fake.ensure(KEY, {})
        assert (await fake.inspect(KEY)).presence is Presence.STARTING
        await asyncio.sleep(DELAYS.ready)
        assert (await fake.inspect(KEY)).presence is Presence.READY

    play(fake_with_fault("ensure", Fault.UNREADY), slowly)

    async def never(fake, world):
        await fake.ensure(KEY, {})
        await asyncio.sleep(86_400)
        assert (await fake.inspect(KEY)).presence is Presence.STARTING

    play(fake_with_fault("ensure", Fault.NEVER_READY), never)


@pytest.mark.parametrize(
    ("fault", "heals"), [(Fault.REFUSED_FOR_A_WHILE, True), (Fault.REFUSED, False)]
)
def test_a_remove_is_refused_for_a_while_or_for_ever(fault, heals):
    async def scenario(fake, world):
        await fake.ensure(KEY, {})
        assert await call(fake.remove(KEY)) is Rejected
        assert world.holds()
        assert await call(fake.remove(KEY)) is Rejected
        await asyncio.sleep(DELAYS.heal)
        assert await call(fake.remove(KEY)) is (None if heals else Rejected)

    play(fake_with_fault("remove", fault), scenario)


def test_what_another_removed_is_gone_and_burned_all_the_same():
    async def scenario(fake, world):
        await fake.ensure(KEY, {})
        await fake.remove(KEY)
        assert [entry.effect for entry in world.log] == ["made", "gone", "nothing"]
        assert await call(fake.ensure(KEY, {})) is Rejected

    play(fake_with_fault("remove", Fault.GONE), scenario)


def test_a_listing_can_lag_and_be_stale():
    async def list_keys(fake):
        return [owned.key async for owned in fake.list_owned("plane")]

    async def list_late(fake, world):
        await fake.ensure(KEY, {})
        assert await list_keys(fake) == []
        assert await list_keys(fake) == [KEY.text]

    play(fake_with_fault("list_owned", Fault.UNLISTED), list_late)

    async def still(fake, world):
        await fake.ensure(KEY, {})
        await fake.remove(KEY)
        assert await list_keys(fake) == [KEY.text]
        assert await list_keys(fake) == []

    play(fake_with_fault("list_owned", Fault.STILL_LISTED), still)

    async def stale(fake, world):
        await fake.ensure(KEY, {})
        assert await list_keys(fake) == []
        assert await list_keys(fake) == [KEY.text]

    play(fake_with_fault("list_owned", Fault.STALE_PAGE), stale)


def test_a_fence_can_be_switched_off():
    async def scenario(fake, world):
        await fake.ensure(KEY._replace(generation=2), {"size": 2})
        await fake.ensure(KEY, {"size": 1})
        assert world.holds()[0].spec == {"size": 1}

    play(fake_with_fault("inspect", Fault.LOST, fences=False), scenario)


def test_a_ledger_counts_every_request():
    async def main(loop):
        world = World(loop)
        asked, mute = ledger(world, "ledger"), ledger(world, "meter", askable=False)
        for _ in range(2):
            await asked.ensure(KEY, {})
        await mute.ensure(KEY, {})
        assert world.made == {("ledger", KEY.text): 2, ("meter", KEY.text): 1}
        assert (await asked.inspect(KEY)).presence is Presence.READY
        with pytest.raises(Rejected):
            await mute.inspect(KEY)

    run(0, main)


@pytest.mark.parametrize(
    ("side", "expected_count"),
    [(CrossingSide.BEFORE, 0), (CrossingSide.DURING, 1), (CrossingSide.AFTER, 1)],
)
def test_a_request_that_has_left_a_dying_process_arrives(side, expected_count):
    async def main(loop):
        world, node = World(loop), Node(loop, "one")
        wire = Tripwire(node, crash_at=1, side=side)
        provider = wire.provider("it", FakeProvider(world, "it"))
        with pytest.raises(Dead):
            await node.run(provider.ensure(KEY, {}))
        assert wire.tripped
        await world.quiet()
        assert len(world.holds()) == expected_count
        with pytest.raises(Dead):
            await provider.inspect(KEY)

    run(0, main)


def test_faults_can_be_drawn_from_a_seed():
    def draw_faults():
        import random

        faults = Faults(generator=random.Random(5), rate=0.3)
        return [faults.strike("it", verb) for verb in ("ensure", "inspect", "remove") * 30]

    assert draw_faults() == draw_faults()
    assert 10 < sum(fault is not None for fault in draw_faults()) < 50
    faults = Faults()
    faults.strike("it", "ensure")
    faults.strike("it", "ensure")
    assert faults.past_calls() == [FaultPoint("it", "ensure", 1), FaultPoint("it", "ensure", 2)]


def test_every_fault_is_of_some_verb():
    # A refusal that does not last breaks a promise: it is drawn only where a scenario says so.
    drawn = set(Fault) - {Fault.REFUSED_ONCE}
    assert {fault for faults in ALPHABET.values() for fault in faults} == drawn
