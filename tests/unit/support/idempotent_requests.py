"""For every mutating route: a request to repeat, and how its effects are counted.

Each case makes its own subject, in the tenant that a token belongs to, and counts what the request
has done to it in the data of the store or of a provider.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenure.app.safety.findings import Sighting, report
from tenure.core.finding import FindingKind
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.records import (
    AgentRecord,
    AuditRecord,
    JournalRecord,
    QuotaRecord,
    SubscriptionRecord,
    TenancyRecord,
    TokenRecord,
)
from tenure.core.verb import VerbName
from tenure.plans.agents.lifecycle import VERBS
from tenure.ports.plane_rows import PLANE_ROW
from tenure.ports.store import Change, Put, Row, Set
from tests.unit.support.api_client import FaceClient

TENANTS = {"admin": "default", "stranger": "elsewhere"}
HOOK = {"kind": "webhook", "target": "https://billing.example/hooks"}
WORKS = {"runtime": {"command": ["agent"]}}


@dataclass(frozen=True)
class Subject:
    """One request, ready to be sent."""

    path: str
    body: object
    count: Callable[[], Awaitable[int]]
    """How often the request has had its effect."""
    other_path: str = ""
    """Another request for the same route: another path, or another body."""
    other_body: object = None

    @property
    def other(self) -> tuple[str, object] | None:
        """Another request under the same key; None if the route can be asked for one thing only."""
        if self.other_path or self.other_body is not None:
            return self.other_path or self.path, self.other_body or self.body
        return None


Prepare = Callable[[FaceClient, str, str], Awaitable[Subject]]
"""Makes a subject with this label in the tenant of this token."""


class Case(NamedTuple):
    """One mutating route."""

    prepare: Prepare
    owner_only: bool = False
    """Only an admin of the plane's own tenant may ask."""


async def count_audit_lines(face: FaceClient, action: str, target: str) -> int:
    """How many audit lines have this action and target."""
    columns = {"action": action, "target": target}
    return len(await face.plane.store.list_rows(AuditRecord, columns, limit=1_000))


def counts(face: FaceClient, action: str, target: str) -> Callable[[], Awaitable[int]]:
    """Count by the line of the audit log that is part of the effect's own commit."""
    return lambda: count_audit_lines(face, action, target)


async def ask(face: FaceClient, caller: str, method: str, path: str, body: object = None) -> Any:
    """What a request without a key answers, which must succeed."""
    answer = await face.ask(method, path, body, token=caller)
    assert answer.status < 300, (path, answer.body)
    return answer.json


# --- agents ---------------------------------------------------------------------------------------


async def agent(face: FaceClient, caller: str, label: str) -> str:
    """The uid of an agent that is READY."""
    made = await face.ask(
        "POST", "/v1/agents", {"name": label, **WORKS}, token=caller, headers={"prefer": "wait=20"}
    )
    assert made.json["state"] == "SUCCEEDED", made.body
    return str(made.json["agent"])


async def create_agent(face: FaceClient, caller: str, label: str) -> Subject:
    body = {"name": label, **WORKS}

    async def count() -> int:
        rows = await face.plane.store.list_rows(
            AgentRecord, {"tenant": TENANTS[caller]}, limit=1_000
        )
        return sum(row.name == label for row in rows)

    return Subject("/v1/agents", body, count, other_body={**body, "name": f"{label}-x"})


def verb(name: str, action: str) -> Prepare:
    """A verb on an agent that is READY; a resume is asked of one that is suspended."""

    async def prepare(face: FaceClient, caller: str, label: str) -> Subject:
        uid = await agent(face, caller, label)
        if name == ":resume":
            path = f"/v1/agents/{label}:suspend"
            done = await face.ask("POST", path, token=caller, headers={"prefer": "wait=20"})
            assert done.json["state"] == "SUCCEEDED", done.body
        await agent(face, caller, f"{label}-x")
        return Subject(
            f"/v1/agents/{label}{name}", None, counts(face, action, uid),
            other_path=f"/v1/agents/{label}-x{name}",
        )  # fmt: skip

    return prepare


async def add_edge(face: FaceClient, caller: str, label: str) -> Subject:
    await agent(face, caller, label)
    body = {"kind": "session", "target": f"{caller}-{label}", "on_delete": "revoke"}
    other = {**body, "target": "another"}
    count = counts(face, "edge.add", f"{caller}-{label}")
    return Subject(f"/v1/agents/{label}/edges", body, count, other_body=other)


async def invite(face: FaceClient, caller: str, label: str) -> Subject:
    uid = await agent(face, caller, label)
    await agent(face, caller, f"{label}-x")
    identity = face.providers["identity"]

    async def count() -> int:
        own = [key.text for key in identity.things.values() if key.agent == uid]
        minted = sum(token.startswith(f"invitation-{own[0]}") for token in identity.invitations)
        lines = await count_audit_lines(face, "agent.invite", uid)
        return max(int(minted), lines)

    other = f"/v1/agents/{label}-x:invite"
    return Subject(f"/v1/agents/{label}:invite", None, count, other_path=other)


# --- operations -----------------------------------------------------------------------------------


def decision(name: str, action: str, *, plan: str = "sticks", body: object = None) -> Prepare:
    """A verb on an operation that waits, or is stuck."""

    async def prepare(face: FaceClient, caller: str, label: str) -> Subject:
        state = "STUCK" if plan == "sticks" else "WAITING"
        ids = [await face.accept(plan, tenant=TENANTS[caller]) for _ in range(2)]
        for one in ids:
            await face.until(one, state, tenant=TENANTS[caller])
        one, other = (f"/v1/operations/{each}{name}" for each in ids)
        return Subject(one, body, counts(face, action, ids[0]), other_path=other)

    return prepare


# --- tokens, keys, quotas, the tenant -------------------------------------------------------------


async def create_token(face: FaceClient, caller: str, label: str) -> Subject:
    body = {"principal": label, "role": "viewer"}

    async def count() -> int:
        said = {"tenant": TENANTS[caller], "principal": label}
        return await face.plane.store.count_rows(TokenRecord, said)

    return Subject("/v1/tokens", body, count, other_body={**body, "role": "operator"})


async def revoke_token(face: FaceClient, caller: str, label: str) -> Subject:
    body = {"principal": label, "role": "viewer"}
    one, other = [(await ask(face, caller, "POST", "/v1/tokens", body))["id"] for _ in range(2)]
    count = counts(face, "token.revoke", one)
    return Subject(f"/v1/tokens/{one}", None, count, other_path=f"/v1/tokens/{other}")


async def rotate_keys(face: FaceClient, caller: str, label: str) -> Subject:
    identity, lines = (
        face.providers["identity"],
        await count_audit_lines(face, "keys.rotate", "identity"),
    )
    before = int(identity.rotations)

    async def count() -> int:
        told = await count_audit_lines(face, "keys.rotate", "identity")
        return max(int(identity.rotations) - before, told - lines)

    return Subject("/v1/keys:rotate", None, count)


def setting(
    record: type[QuotaRecord | TenancyRecord], path: str, body: object, other: object
) -> Prepare:
    """A setting whose row counts its changes."""

    async def revision(face: FaceClient, caller: str) -> int:
        rows = await face.plane.store.list_rows(record, {"tenant": TENANTS[caller]}, limit=10)
        return rows[0].revision if rows else 0

    async def prepare(face: FaceClient, caller: str, label: str) -> Subject:
        before = await revision(face, caller)

        async def count() -> int:
            return await revision(face, caller) - before

        return Subject(path, body, count, other_body=other)

    return prepare


async def confirm_plane(face: FaceClient, caller: str, label: str) -> Subject:
    hold, before = face.plane.pause, await count_audit_lines(face, "plane.confirm", face.plane.id)
    held = Set("plane", PLANE_ROW, {"held": "it was restored"})
    assert await face.plane.store.commit(Change("", (), (held,))) is None
    await hold.update_memo(pause_reason="it was restored")

    async def count() -> int:
        return await count_audit_lines(face, "plane.confirm", face.plane.id) - before

    return Subject("/v1/plane:confirm", None, count)


# --- findings -------------------------------------------------------------------------------------


async def finding(face: FaceClient, caller: str, label: str, key: ResourceKey | None = None) -> str:
    """The id of an open finding; it is about this resource of the runtime, if about one."""
    said: dict[str, object] = {"what": "it is there"}
    if key is not None:
        said |= {"provider": "runtime", "generation": key.generation}
    kind = FindingKind.DRIFT if key is None else FindingKind.UNVERIFIABLE
    resource, about = ("", "") if key is None else (key.text, key.agent)
    seen = Sighting("orphans", kind, f"{caller} {label}", TENANTS[caller], about, resource, said)
    row = await report(face.plane, seen)
    assert row is not None
    return row.id


async def resolve_finding(face: FaceClient, caller: str, label: str) -> Subject:
    one, other = [await finding(face, caller, f"{label} {each}") for each in range(2)]
    count = counts(face, "finding.resolve", one)
    other = f"/v1/findings/{other}:resolve"
    return Subject(f"/v1/findings/{one}:resolve", None, count, other_path=other)


async def remove_resource(face: FaceClient, caller: str, label: str) -> Subject:
    key = resource_key(
        face.plane.id, tenant=TENANTS[caller], agent=f"{abs(hash(label)):032x}", generation=1,
        slot="runtime", name="",
    )  # fmt: skip
    runtime = face.providers["runtime"]
    runtime.things[key.text] = key
    one = await finding(face, caller, label, key)

    async def count() -> int:
        lines = await count_audit_lines(face, "finding.remove", one)
        return lines if key.text not in runtime.things else 0

    path = f"/v1/findings/{one}:remove"
    return Subject(path, {}, count, other_body={"tenant": TENANTS[caller]})


async def reconcile(face: FaceClient, caller: str, label: str) -> Subject:
    async def look(name: str, dry_run: bool) -> tuple[()]:
        return ()

    face.plane.reconcile_state.run_now = look
    before = await count_audit_lines(face, "reconcile", "all")

    async def count() -> int:
        return await count_audit_lines(face, "reconcile", "all") - before

    return Subject("/v1/findings:reconcile", {}, count, other_body={"name": "orphans"})


# --- subscriptions --------------------------------------------------------------------------------


async def new_subscription(face: FaceClient, caller: str, label: str) -> str:
    """The id of a webhook."""
    made = await ask(face, caller, "POST", "/v1/subscriptions", {"name": label, **HOOK})
    return str(made["id"])


async def create_subscription(face: FaceClient, caller: str, label: str) -> Subject:
    body = {"name": label, **HOOK}

    async def count() -> int:
        said = {"tenant": TENANTS[caller], "name": label}
        return await face.plane.store.count_rows(SubscriptionRecord, said)

    return Subject("/v1/subscriptions", body, count, other_body={**body, "name": f"{label}-x"})


def on_subscription(name: str, action: str) -> Prepare:
    """A request for a webhook; it has a parked stream with letters of two agents."""

    async def prepare(face: FaceClient, caller: str, label: str) -> Subject:
        one, other = [await new_subscription(face, caller, f"{label}-{each}") for each in range(2)]
        parked: Row = {"attempts": 3, "due_at": None, "why": "it said no", "since": 1.0}
        letter: Row = {
            "tenant": TENANTS[caller], "operation": "o", "type": "agent.ready", "at": 1.0,
            "body": "{}", "sequence": 1,
        }  # fmt: skip
        puts = (Put("parked", (one, "a"), parked), Put("letter", (one, "a", 1), letter))
        assert await face.plane.store.commit(Change("", (), puts)) is None
        path = f"/v1/subscriptions/{one}{name}"
        other = f"/v1/subscriptions/{other}{name}"
        return Subject(path, None, counts(face, action, one), other_path=other)

    return prepare


async def acknowledge(face: FaceClient, caller: str, label: str) -> Subject:
    one = await new_subscription(face, caller, label)
    ids = [await face.accept("waits", tenant=TENANTS[caller]) for _ in range(2)]
    for operation in ids:
        await face.until(operation, "WAITING", tenant=TENANTS[caller])
        row: Row = {"tenant": TENANTS[caller], "agent": "a", "since": 1.0}
        put = Put("awaited", (operation, one), row)
        assert await face.plane.store.commit(Change("", (), (put,))) is None

    async def count() -> int:
        rows = await face.plane.store.list_rows(JournalRecord, {"operation": ids[0]}, limit=100)
        lines = await count_audit_lines(face, "subscription.acknowledge", one)
        return max(sum(row.kind == "SIGNALLED" for row in rows), lines)

    path = f"/v1/subscriptions/{one}/acknowledgements"
    return Subject(path, {"operation": ids[0]}, count, other_body={"operation": ids[1]})


OPERATION, STEP = "/v1/operations/{operation}", "/v1/operations/{operation}/steps/{step}"
AGENT, SUBSCRIPTION = "/v1/agents/{agent}", "/v1/subscriptions/{subscription}"
CASES: dict[str, Case] = {
    "POST /v1/plane:confirm": Case(confirm_plane, owner_only=True),
    "POST /v1/agents": Case(create_agent),
    f"DELETE {AGENT}": Case(verb("", "agent.delete")),
    **{
        f"POST {AGENT}:{word}": Case(verb(f":{word}", declared.audit))
        for declared in VERBS.values()
        if (word := declared.name.removesuffix("_agent")) not in {"create", "delete"}
        and declared.name is not VerbName.RECOVER  # requested by a reconciler alone
    },
    f"POST {AGENT}/edges": Case(add_edge),
    f"POST {AGENT}:invite": Case(invite),
    f"POST {OPERATION}:cancel": Case(decision(":cancel", "operation.cancel", plan="waits")),
    f"POST {OPERATION}:retry": Case(decision(":retry", "operation.retry")),
    f"POST {OPERATION}:abandon": Case(decision(":abandon", "operation.abandon")),
    f"POST {STEP}:adopt": Case(decision("/steps/charge:adopt", "operation.adopt", body={})),
    f"POST {STEP}:mark-absent": Case(
        decision("/steps/charge:mark-absent", "operation.mark_absent")
    ),
    "POST /v1/tokens": Case(create_token),
    "DELETE /v1/tokens/{token}": Case(revoke_token),
    "POST /v1/keys:rotate": Case(rotate_keys, owner_only=True),
    "PUT /v1/quotas/agents": Case(
        setting(QuotaRecord, "/v1/quotas/agents", {"most": 900}, {"most": 901})
    ),
    "PUT /v1/tenant": Case(
        setting(TenancyRecord, "/v1/tenant", {"strict": False}, {"strict": True})
    ),
    "POST /v1/findings/{finding}:resolve": Case(resolve_finding),
    "POST /v1/findings/{finding}:remove": Case(remove_resource),
    "POST /v1/findings:reconcile": Case(reconcile, owner_only=True),
    "POST /v1/subscriptions": Case(create_subscription),
    f"DELETE {SUBSCRIPTION}": Case(on_subscription("", "subscription.delete")),
    f"POST {SUBSCRIPTION}:rotate": Case(on_subscription(":rotate", "subscription.rotate")),
    f"POST {SUBSCRIPTION}/dead-letters:replay": Case(
        on_subscription("/dead-letters:replay", "letters.replay")
    ),
    f"POST {SUBSCRIPTION}/dead-letters:discard": Case(
        on_subscription("/dead-letters:discard", "letters.discard")
    ),
    f"POST {SUBSCRIPTION}/acknowledgements": Case(acknowledge),
}
