"""`tenure finding`, `reconcile` and `agent delete --dry-run`, as they are typed."""

import json
import sys

from tenure.adapters.clock.system import SystemClock
from tenure.app.agents import commands as agents
from tenure.app.agents.spec import read_spec
from tenure.app.leader import Leader
from tenure.app.operations import reads
from tenure.app.safety import findings
from tenure.app.safety.findings import Sighting
from tenure.core.finding import FindingKind
from tenure.core.roles import Caller, Role
from tenure.faces.cli.output import instant
from tenure.faces.http.server import Listen, serving
from tenure.ports.store import Change
from tenure.reconcilers import leases
from tenure.reconcilers.driver import reconciling
from tenure.reconcilers.passes import LEADERS
from tenure.testing.patches import patched
from tests.unit.support.api_client import api_test

CALLER = Caller("default", "admin", Role.ADMIN)


async def create_ready(face, name, **more):
    spec = read_spec({"name": name, "runtime": {"command": ["agent"]}, **more})
    asked = await agents.create_agent(face.plane, CALLER, spec)
    return (await reads.wait(face.plane, "default", asked.id, seconds=30)).agent


@api_test
async def test_a_finding_is_listed_shown_and_resolved(face, typing):
    body = {"what": "it is lost", "failing_since": 0.0, "expires_at": 60.0}
    seen = Sighting("orphans", FindingKind.DRIFT, "x", "default", "someone", "r1", body)
    await findings.report(face.plane, seen)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        code, out, _ = await tenure("finding", "list", "-o", "name")
        assert code == 0
        (name,) = out.split()
        code, out, _ = await tenure("finding", "show", name)
        assert code == 0
        assert "it is lost" in out
        assert "failing_since: 1970-01-01 00:00:00\n" in out
        assert "expires_at:    1970-01-01 00:01:00\n" in out
        assert (await tenure("finding", "resolve", name))[::2] == (0, "1 resolved\n")
        code, out, _ = await tenure("finding", "resolve", name, "-o", "json")
        assert code == 1
        assert (await tenure("finding", "list", "-o", "name"))[1] == ""
        (head, row) = (await tenure("finding", "list", "--all"))[1].splitlines()
        assert "RESOLVED" in head
        (found,) = (await face.ask("GET", "/v1/findings?resolved=true")).json["items"]
        assert row.endswith(f"{instant(found['resolved_at'])}  it is lost")


@api_test
async def test_a_resource_that_nobody_knows_is_removed_by_its_finding(face, typing):
    said = {"what": "runtime r1 is unknown", "provider": "runtime", "generation": 1}
    kind = FindingKind.UNVERIFIABLE
    seen = Sighting("orphans", kind, "runtime r1", "default", "f" * 32, "r1", said)
    await findings.report(face.plane, seen)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address, "admin")
        (name,) = (await tenure("finding", "list", "-o", "name"))[1].split()
        code, _, told = await tenure("finding", "remove", name)
        assert code == 2
        assert "runtime r1 is unknown" in told
        assert "runtime r1 will be removed at its provider" in told
        told = (await tenure("finding", "remove", name, "--yes"))[2]
        assert told == "runtime r1 is removed\n"
        code, out, _ = await tenure("finding", "remove", name, "--yes", "-o", "name")
        assert (code, out) == (0, f"{name}\n")
        assert (await tenure("finding", "list", "-o", "name"))[1] == ""


@api_test
async def test_who_does_not_lead_says_so(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        code, _, told = await typing(face, address, "admin")("reconcile", "--dry-run")
        assert code == 1
        assert "not_leading" in told


@api_test
async def test_who_is_asked_takes_the_lead_from_one_that_may_have_no_face(face, typing):
    worker = Leader(face.plane, LEADERS)
    assert await worker.renew()
    async with (
        serving(face.http_state, Listen(port=0)) as address,
        reconciling(face.plane, clock=SystemClock(), seconds=1_000.0),
    ):
        tenure = typing(face, address, "admin")
        code, out, _ = await tenure("reconcile", "leases", "--dry-run", "-o", "name")
        assert (code, out) == (0, "leases\n")
        assert await face.plane.store.commit(Change("", (worker.guard,), ())) is None
        code, out, _ = await tenure("reconcile", "leases", "-o", "name")
        assert (code, out) == (0, "leases\n")
        refused = await face.plane.store.commit(Change("", (worker.guard,), ()))
        assert refused is not None, "who had it commits nothing more"
        with patched(Leader, take_over=lose):
            code, _, told = await tenure("reconcile", "leases")
        assert code == 1
        assert "not_leading" in told


async def lose(_leader):
    return False


@api_test
async def test_what_is_seen_and_what_could_not_look_is_said(face, typing):
    await create_ready(face, "alpha")
    face.providers["runtime"].things.clear()
    async with (
        serving(face.http_state, Listen(port=0)) as address,
        reconciling(face.plane, clock=SystemClock(), seconds=1_000.0),
    ):
        tenure = typing(face, address, "admin")
        code, _, told = await tenure("reconcile", "drift", "--dry-run")
        assert code == 0
        assert "DRIFT runtime" in told
        code, out, told = await tenure("reconcile", "drift")
        assert code == 0
        assert "DRIFT runtime" in told, "what was recorded is shown too"
        recorded = (await tenure("finding", "list", "-o", "name"))[1].split()
        row = out.splitlines()[1].split()
        assert (row[0], row[3]) == ("drift", str(len(recorded)))
        with patched(leases, tick=None):
            code, _, told = await tenure("reconcile", "leases")
        assert code == 1
        assert "leases failed" in told


@api_test
async def test_at_a_terminal_sub_agents_go_only_after_a_yes(face, typing, monkeypatch):
    await create_ready(face, "root")
    await create_ready(face, "left", parent="root")
    await create_ready(face, "leaf", parent="left")
    asked = []

    def confirm(words, **_):
        asked.append(words)
        return False

    monkeypatch.setattr("click.confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        assert "parent:  left" in (await tenure("agent", "show", "leaf"))[1]
        code, _, told = await tenure("agent", "delete", "root")
        assert (code, told) == (1, "error: nothing was done\n")
        assert asked.pop() == "2 sub-agents will be deleted too: leaf, left. Go on?"
        assert (await tenure("agent", "delete", "leaf", "--no-wait"))[0] == 0, "it has none"
        assert (await tenure("agent", "delete", "root", "--yes", "--timeout", "5"))[0] == 0
        assert asked == []


@api_test
async def test_what_would_go_with_an_agent_is_a_tree(face, typing):
    await create_ready(face, "root")
    await create_ready(face, "left", parent="root")
    await create_ready(face, "right", parent="root")
    await create_ready(face, "leaf", parent="left")
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        code, out, told = await tenure("agent", "delete", "root", "--dry-run")
        assert code == 0
        lines = out.splitlines()
        assert lines[0] == "root: delete"
        assert {line.split()[-2].rstrip(":") for line in lines[1:]} == {"left", "right", "leaf"}
        assert "3 to delete" in told
        code, out, _ = await tenure("agent", "delete", "root", "--dry-run", "-o", "json")
        assert code == 0
        assert {one["name"] for one in json.loads(out)} == {"left", "right", "leaf"}
        assert (await tenure("agent", "list", "-o", "name"))[1].split() != []
