"""The promises about agents: which profiles prove them, safe retries, tenants, the audit log."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from proofs.agents.ablations import ABLATIONS
from proofs.agents.lifecycle import CALLER, TENANT, AgentCluster, spec_of
from proofs.agents.scenarios import MATRIX, Act, perform, wait_for_rest
from proofs.agents.workload import AgentsSimulation
from proofs.harness.cluster import Client
from proofs.harness.subject import Check, Checks, Proof, Subject
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.agents import views as agent_views
from tenure.app.agents.commands import RequestOptions
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.app.tenancy import audit, quotas, tokens
from tenure.core.errors import CallerError, Conflict, NotFound
from tenure.core.limits import IDEMPOTENCY_SECONDS
from tenure.core.records import RECORD_NAMED, OperationRecord
from tenure.core.roles import Caller, Role
from tenure.core.verb import VerbName
from tenure.ports.store import Store
from tenure.testing.loop import SeededLoop, run
from tenure.testing.operators import by
from tenure.testing.tripwire import CrossingSide

STRANGER = Caller("elsewhere", CALLER.principal, Role.ADMIN)
"""Of another tenant, under the same name."""
SAME = 50
"""Requests with one key at the same time."""
SEEDS = 30
CROSSINGS = 60
AGAIN = "python -m proofs.prove"


# --- P10: the same key is the same operation ------------------------------------------------------


def retries() -> Checks:
    """Many at once, other bodies, other tenants, replays; then planes that die meanwhile."""
    for seed in range(SEEDS):
        yield Check(f"{AGAIN} 10 (seed {seed})", run(seed, _retry))
    for number, side in itertools.product(
        range(1, CROSSINGS), (CrossingSide.BEFORE, CrossingSide.AFTER)
    ):
        wrong = run(0, lambda loop, n=number, s=side: _retry_after_death(loop, n, s))  # type: ignore[misc]
        yield Check(f"{AGAIN} 10 (death {side} crossing {number})", wrong)


async def _retry(loop: SeededLoop) -> list[str]:
    cluster = AgentCluster(loop)
    planes = [cluster.boot(f"plane {number}") for number in range(2)]
    for process in planes:
        await process.start()
    cluster.serving += planes
    first, second = (process.plane for process in planes)
    key, wrong = RequestOptions(idempotency_key="once"), []
    verbs: list[tuple[str, Callable[[Plane, Caller], Awaitable[OperationView]]]] = [
        ("create", lambda p, c: agents.create_agent(p, c, spec_of("alpha"), request_options=key)),
        ("suspend", lambda p, c: agents.suspend_agent(p, c, "alpha", request_options=key)),
        ("resume", lambda p, c: agents.resume_agent(p, c, "alpha", request_options=key)),
        ("stop", lambda p, c: agents.stop_agent(p, c, "alpha", request_options=key)),
        ("delete", lambda p, c: agents.delete_agent(p, c, "alpha", request_options=key)),
    ]
    made: dict[str, str] = {}
    for name, verb in verbs:
        asked = [verb(plane, CALLER) for plane in (first, second) for _ in range(SAME // 2)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        ids = {
            answer.id if isinstance(answer, OperationView) else repr(answer) for answer in answers
        }
        if len(ids) != 1:
            wrong.append(f"{SAME} times {name} with one key gave {sorted(ids)[:3]}")
        made[name] = min(ids)
        await wait_for_rest(cluster)
    wrong += await _other_requests(first)
    for row in _rows(cluster, "idempotency").values():
        row["at"] -= IDEMPOTENCY_SECONDS - 600  # a day is nearly over
    for name, verb in verbs:
        again = await _answer(verb(second, CALLER))
        if again != made[name]:
            wrong.append(f"{name} with the same key a day later gave {again}, not {made[name]}")
    if cluster.world.things:
        wrong.append("a late duplicate has made something again")
    return wrong


async def _other_requests(plane: Plane) -> list[str]:
    """Another body is refused; another tenant's key is another key."""
    wrong: list[str] = []
    key = RequestOptions(idempotency_key="once")
    said = await _answer(agents.create_agent(plane, CALLER, spec_of("beta"), request_options=key))
    if said != "idempotency_mismatch":
        wrong.append(f"one key for another request gave {said}")
    mine = await _answer(agents.create_agent(plane, CALLER, spec_of("alpha"), request_options=key))
    wrong += await _keys_apart(plane, key, mine)
    await _answer(agents.delete_agent(plane, STRANGER, "alpha"))
    await asyncio.sleep(60)
    return wrong


async def _keys_apart(plane: Plane, key: RequestOptions, mine: str) -> list[str]:
    """The same request with the same key in another tenant is another operation."""
    theirs = await _answer(
        agents.create_agent(plane, STRANGER, spec_of("alpha"), request_options=key)
    )
    known = await plane.store.find(OperationRecord, (theirs,))
    apart = theirs != mine and known is not None and known.tenant == STRANGER.tenant
    return [] if apart else [f"with another tenant's key a create gave {theirs}"]


def _rows(cluster: AgentCluster, table: str) -> dict[Any, Any]:
    """The rows of a table, as a hand can reach them."""
    tables: Any = cluster.disk
    rows: dict[Any, Any] = tables.tables.rows[table]
    return rows


async def _retry_after_death(loop: SeededLoop, crossing: int, side: CrossingSide) -> list[str]:
    cluster = AgentCluster(loop)
    supervisor = loop.create_task(cluster.supervise("plane", crash_at=crossing, side=side))
    client = Client(cluster)
    for number, verb in enumerate((VerbName.CREATE, VerbName.SUSPEND, VerbName.DELETE)):
        options = RequestOptions(idempotency_key=f"act {number}")
        twice = [
            await client.ask(partial(perform, act=Act(verb), request_options=options))
            for _ in range(2)
        ]
        if twice[0].id != twice[1].id:
            return [f"{verb} was accepted as {twice[0].id} and as {twice[1].id}"]
        await wait_for_rest(cluster)
    supervisor.cancel()
    count = len(await cluster.disk.observer().list_operations(TENANT, limit=100))
    return [] if count == 3 else [f"three keys have made {count} operations"]


async def _answer(request: Awaitable[OperationView]) -> str:
    """The operation's id, or the code of the refusal."""
    try:
        return (await request).id
    except Conflict as refused:
        return refused.code
    except CallerError as refused:
        return type(refused).__name__


# --- P18: another tenant's object is as absent as one that never was -----------------------------


def tenants() -> Checks:
    """Everything that can be asked of an object, asked by another tenant, of every kind of it."""
    yield from run(0, _ask_across)


async def _ask_across(loop: SeededLoop) -> list[Check]:
    cluster = AgentCluster(loop)
    process = cluster.boot("plane")
    await process.start()
    cluster.serving.append(process)
    return await across(process.plane, cluster.disk.observer(), lambda: wait_for_rest(cluster))


async def across(plane: Plane, store: Store, rest: Callable[[], Awaitable[object]]) -> list[Check]:
    """Every question of a stranger to this plane; `store` shows what is kept, `rest` waits."""
    uids: list[str] = []
    ids: list[str] = []
    for name, acts in (("alpha", ()), ("beta", (VerbName.SUSPEND,)), ("gamma", (VerbName.DELETE,))):
        for verb in (VerbName.CREATE, *acts):
            made = await perform(
                plane,
                Act(verb, name),
                request_options=RequestOptions(idempotency_key=f"{verb} {name}"),
            )
            ids.append(made.id)
            uids.append(made.agent)
            await rest()
    view, _ = await tokens.create_token(plane, CALLER, principal="p", role=Role.VIEWER)
    before = await _everything(store)
    found: list[Check] = []
    for what, question, theirs, nobodys in _questions(plane, uids, ids, view.id):
        seen = await _outcome_text(question(theirs))
        absent = await _outcome_text(question(nobodys))
        same = seen.replace(theirs, "X") == absent.replace(nobodys, "X")
        wrong = [] if same else [f"{what} of another's gives {seen}, of nobody's {absent}"]
        if await _everything(store) != before:
            wrong.append(f"{what} of another's has changed something")
        found.append(Check(f"{AGAIN} 18 ({what} of {theirs})", wrong))
    for what, listed in await _lists(plane):
        found.append(Check(f"{AGAIN} 18 ({what})", [f"{what}: {listed}"] if listed else []))
    key = RequestOptions(idempotency_key=f"{VerbName.CREATE} alpha")
    found.append(Check(f"{AGAIN} 18 (keys)", await _keys_apart(plane, key, ids[0])))
    return found


def _questions(
    plane: Plane, uids: list[str], ids: list[str], token: str
) -> Iterator[tuple[str, Callable[[str], Awaitable[object]], str, str]]:
    """What is asked, how, of which object of another, and of which that never was."""
    of_agents: dict[str, Callable[[str], Awaitable[object]]] = {
        "get_agent": lambda n: agent_views.get_agent(plane, STRANGER, n),
        "list_resources": lambda n: agent_views.list_resources(plane, STRANGER, n),
        "address_of": lambda n: invocations.address_of(plane, STRANGER, n),
        "logs": lambda n: agent_views.logs(plane, STRANGER, n),
        "follow_logs": lambda n: agent_views.follow_logs(plane, STRANGER, n, since=0),
        "suspend": lambda n: agents.suspend_agent(plane, STRANGER, n),
        "resume": lambda n: agents.resume_agent(plane, STRANGER, n),
        "stop": lambda n: agents.stop_agent(plane, STRANGER, n),
        "delete": lambda n: agents.delete_agent(plane, STRANGER, n),
    }
    of_operations: dict[str, Callable[[str], Awaitable[object]]] = {
        "get": lambda n: reads.get_operation(plane, "elsewhere", n),
        "wait": lambda n: reads.wait(plane, "elsewhere", n, seconds=0.1),
        "cancel": lambda n: operations.cancel(plane, by("stranger", "elsewhere"), n),
        "retry": lambda n: operations.retry(plane, by("stranger", "elsewhere"), n),
        "abandon": lambda n: operations.abandon(plane, by("stranger", "elsewhere"), n),
        "signal": lambda n: operations.signal(plane, by("stranger", "elsewhere"), n, name="go"),
    }
    for what, question in of_agents.items():
        named = [("alpha", "omega"), ("beta", "omega"), *((uid, "0" * 32) for uid in uids)]
        for name, nobodys in named:
            yield what, question, name, nobodys
    yield (
        "parent", lambda n: agents.create_agent(plane, STRANGER, spec_of("delta", parent=n)),
        "alpha", "omega",
    )  # fmt: skip
    for what, question in of_operations.items():
        for name in ids:
            yield what, question, name, "0" * 32
    yield "revoke", lambda n: tokens.revoke_token(plane, STRANGER, n), token, "0" * 32


async def _outcome_text(request: Awaitable[object]) -> str:
    try:
        return f"an answer: {await request}"
    except NotFound as refused:
        return f"NotFound: {refused}"
    except CallerError as refused:
        return f"{type(refused).__name__}: {refused}"


async def _lists(plane: Plane) -> list[tuple[str, object]]:
    return [
        ("list_agents", await agent_views.list_agents(plane, STRANGER)),
        ("list_operations", await reads.list_operations(plane, "elsewhere")),
        ("list_tokens", await tokens.list_tokens(plane, STRANGER)),
        ("list_audit", await audit.list_audit(plane, STRANGER)),
        ("quota", (await quotas.get_quota(plane, STRANGER)).used),
    ]


async def _everything(store: Store) -> dict[str, list[Any]]:
    tables = ("agent", "agent_name", "operation", "token", "audit", "reservation", "idempotency")
    return {
        table: list(await store.list_rows(RECORD_NAMED[table], {}, limit=1_000)) for table in tables
    }


# --- P20: whatever is done to the audit log is found ----------------------------------------------


def tampering() -> Checks:
    """Every entry edited in every column, removed, moved, doubled; the log cut at every place."""
    yield from run(0, _tamper)


async def _tamper(loop: SeededLoop) -> list[Check]:
    cluster = AgentCluster(loop)
    process = cluster.boot("plane")
    await process.start()
    cluster.serving.append(process)
    plane = process.plane
    for number in range(4):
        for verb in (VerbName.CREATE, VerbName.SUSPEND, VerbName.DELETE):
            key = RequestOptions(idempotency_key=f"{verb} {number}")
            await perform(plane, Act(verb, f"agent-{number}"), request_options=key)
            await wait_for_rest(cluster)
    rows = _rows(cluster, "audit")
    whole = {key: dict(row) for key, row in rows.items()}
    verdict = await audit.verify(plane)
    found = [Check(f"{AGAIN} 20 (untouched)", [] if verdict.broken is None else [str(verdict)])]
    for what, position, harmed in harms(whole):
        rows.clear()
        rows.update({key: dict(row) for key, row in harmed.items()})
        seen = (await audit.verify(plane, head=verdict.head)).broken
        wrong = [f"{what} at {position} was not found"] if seen is None else []
        if seen is not None and not position <= seen.position <= position + 1:
            wrong.append(f"{what} at {position} was said to be at {seen.position}")
        found.append(Check(f"{AGAIN} 20 ({what} at {position})", wrong))
    return found


def harms(whole: dict[Any, Any]) -> Iterator[tuple[str, int, dict[Any, Any]]]:
    """What was done, to which entry, and the log after it."""
    last = len(whole)
    for (position,), row in whole.items():
        for column, value in row.items():
            if column != "position":
                other = value + 1.0 if isinstance(value, float) else f"{value}x"
                yield f"edit of {column}", position, {**whole, (position,): {**row, column: other}}
        without = {key: kept for key, kept in whole.items() if key != (position,)}
        yield "removal", position, without
        renumbered = {
            (number,): {**kept, "position": number}
            for number, kept in enumerate(without.values(), 1)
        }
        yield "removal with new numbers", position, renumbered
        if position < last:
            below = whole[position + 1,]
            swapped = {
                **whole,
                (position,): {**below, "position": position},
                (position + 1,): {**row, "position": position + 1},
            }
            yield "reorder", position, swapped
        cut = {key: kept for key, kept in whole.items() if key[0] < position}
        yield "cut", position, cut


SUBJECT = Subject(
    "agents",
    (
        Proof(2, ("agents", "closing", "queued", "quota", "names", "spared", "disrupted")),
        Proof(3, ("agents",)),
        Proof(10, checks=retries),
        Proof(13, ("closing", "queued", "owned", "late", "agents", "disrupted")),
        Proof(18, checks=tenants),
        Proof(20, checks=tampering),
    ),
    ABLATIONS,
    AgentsSimulation,
    MATRIX,
    seeds=150,
)
