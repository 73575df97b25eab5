"""The drill of a restore: a plane is backed up, lives on, is killed, and is restored.

Everything is counted in the providers' own files and in the process table, and asked over HTTP and
by the command line; nothing here reaches into Tenure.
"""

import json
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import apsw
from joserfc.jwk import ECKey

from tenure.faces.http.server import ROUTES
from tests.e2e.support.plane_process import Plane
from tests.e2e.test_agent_identity import AUDIENCE, FORM, Server, assertion, token_form
from tests.real.support.runtimes import AGENT, keepers, until

WAIT = {"Prefer": "wait=60"}
PROVIDERS = ("identity", "access", "credentials")


def truth(home: Path) -> dict[str, dict[str, str]]:
    """What the providers hold by their own files: the agent of every key."""
    held: dict[str, dict[str, str]] = {}
    for name in PROVIDERS:
        file = apsw.Connection(str(home / f"{name}.db"), flags=apsw.SQLITE_OPEN_READONLY)
        rows = file.execute("SELECT key, agent FROM resource WHERE state = 'PRESENT'").fetchall()
        held[name] = {str(key): str(agent) for key, agent in rows}
        file.close()
    owners = (home / "runtimes").glob("local-*/*/owner.json")
    held["runtime"] = {one.parent.name: json.loads(one.read_text())["agent"] for one in owners}
    return held


def running(home: Path) -> dict[str, int]:
    """The keeper of every key, by the process table."""
    found: dict[str, int] = {}
    for pid in keepers(home / "runtimes"):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it may end meanwhile
                if (lock := file.readlink()).name == "lock":
                    found[lock.parent.name] = pid
    return found


def spec(name: str, mode: str = "healthy") -> dict[str, object]:
    command = [sys.executable, "-I", "-S", str(AGENT)]
    runtime = {"command": command, "env": {"MODE": mode}, "ready_seconds": 600}
    credentials = [{"audience": AUDIENCE, "scopes": ["mail:read"]}]
    return {"name": name, "runtime": runtime, "credentials": credentials}


class Drill:
    """One plane, and what was handed out in it."""

    def __init__(self, plane: Plane, backup: Path) -> None:
        self.plane = plane
        self.backup = backup
        self.pair = ECKey.generate_key("P-256", parameters={"kid": "mine"})
        self.uids: dict[str, str] = {}
        self.old_tokens: list[str] = []
        self.client_id = self.jwt = self.pending = self.late_head = ""
        self.server: Server
        self.number = 0

    # --- asking ----------------------------------------------------------------------------------

    def ask(self, method, path, body=b"", **more):
        data = body if isinstance(body, bytes | str) else json.dumps(body)
        return self.server.ask(method, path, data, bearer=self.server.admin, **more)

    def create(self, name: str, mode: str = "healthy") -> str:
        wait = {} if mode == "silent" else WAIT
        made = self.ask("POST", "/v1/agents", spec(name, mode), **wait)
        assert mode == "silent" or made[1]["state"] == "SUCCEEDED", made
        self.uids[name] = self.ask("GET", f"/v1/agents/{name}")[1]["uid"]
        return str(made[1]["id"])

    def verb(self, name: str, verb: str) -> dict[str, object]:
        method, path = ("DELETE", "") if verb == "delete" else ("POST", f":{verb}")
        body = b"" if verb in {"delete", "resume"} else b"{}"
        _, told = self.ask(method, f"/v1/agents/{name}{path}", body, **WAIT)
        assert told.get("state") == "SUCCEEDED", told
        return dict(told)

    def mint(self):
        self.number += 1
        signed = assertion(self.pair, self.client_id, self.server.address, self.number)
        return self.server.ask("POST", "/oauth/token", token_form(signed), kind=FORM)

    def is_known(self, token: str) -> bool:
        return bool(self.server.ask("GET", "/v1/agents", bearer=token)[0] == 200)

    # --- its acts --------------------------------------------------------------------------------

    def before(self) -> None:
        """Four agents, one of them still on its way; a token of each kind; then the backup."""
        self.plane.start()
        self.server = Server(self.plane.home)
        for name in ("stays", "goes", "closes"):
            self.create(name)
        self.pending = self.create("pending", "silent")
        _, invitation = self.ask("POST", "/v1/agents/stays:invite")
        keys = json.dumps({"jwks": {"keys": [self.pair.as_dict(private=False)]}})
        told = self.server.ask("POST", "/oauth/register", keys, bearer=invitation["token"])
        assert told[0] == 201, told
        self.client_id = invitation["client_id"]
        self.jwt = self.mint()[1]["access_token"]
        assert self.server.is_active(self.jwt)
        _, token = self.ask("POST", "/v1/tokens", {"principal": "eve", "role": "operator"})
        self.old_tokens = [self.server.admin, token["token"]]
        self.revocable = token["id"]
        self.plane.run("backup", str(self.backup))

    def after(self) -> None:
        """What the backup knows nothing of; and the kill, in the middle of a create."""
        self.verb("goes", "delete")
        self.verb("closes", "suspend")
        self.create("comes")
        assert self.ask("DELETE", f"/v1/tokens/{self.revocable}")[0] == 200
        _, token = self.ask("POST", "/v1/tokens", {"principal": "bob", "role": "admin"})
        self.old_tokens.append(token["token"])
        self.late_head = self.ask("GET", "/v1/audit/verify")[1]["head"]
        self.create("unfinished", "silent")
        # What was deleted or suspended has ended.
        assert until(lambda: len(running(self.plane.home)) == 4)
        assert self.plane.stop(signal.SIGKILL) == -signal.SIGKILL

    def restored(self) -> None:
        """The backup is put back, and the plane is held: nothing that there is goes."""
        home = self.plane.home
        was, ran = truth(home), running(home)
        self.plane.run("restore", str(self.backup), "--yes")
        assert truth(home) == was, "a restore takes nothing away from a provider"
        self.plane.start()
        self.server = Server(home)
        assert self.server.admin not in self.old_tokens
        assert self.is_known(self.server.admin)
        alive = [token for token in self.old_tokens if self.is_known(token)]
        assert not alive, "a token that was issued before the restore is dead"
        assert not self.server.is_active(self.jwt), "an agent's token too"
        told = self.ask("GET", "/v1/plane")[1]
        assert told["held"], "the plane is held"
        assert told["epoch"] == 2, told
        names = {one["name"] for one in self.ask("GET", "/v1/agents")[1]["items"]}
        assert names == {"stays", "goes", "closes", "pending"}, "reads work"
        self.nothing_changes()
        assert truth(home) == was, "0 deletions before the confirmation"
        assert running(home) == ran, "no process ended, and none began"

    def nothing_changes(self) -> None:
        """Whatever is no read is refused with one code, by every route there is."""
        for route in ROUTES:
            if route.method != "GET" and route.name != "confirm_plane":
                path = re.sub(r"{\w+}", "stays", route.path)
                status, told = self.ask(route.method, path, b"{}")
                assert (status, told["code"]) == (503, "held"), (route.method, path, told)
        assert self.mint()[0] == 503, "nothing is minted"

    def confirmed(self) -> None:
        """What would happen is told, and then happens; and nothing else does."""
        home, uids = self.plane.home, self.uids
        _, seen = self.ask("GET", "/v1/plane/review")
        assert [one["operation"] for one in seen["resumed"]] == [self.pending]
        missing = {(one["name"], one["slot"]) for one in seen["missing"]}
        slots = {"identity", "access", "runtime", "credentials"}
        assert missing == {("goes", slot) for slot in slots} | {("closes", "runtime")}
        assert [one["name"] for one in seen["shut"]] == ["closes"]
        assert seen["started"] == [], "nobody lacks a runtime alone who was not suspended"
        unknown = {(one["agent"], one["slot"]) for one in seen["unknown"]}
        assert {agent for agent, _ in unknown} == {uids["comes"], uids["unfinished"]}
        assert {(uids["comes"], slot) for slot in slots} <= unknown
        was, ran = truth(home), running(home)
        told = self.plane.run("restore", "--confirm", "--yes")
        assert "epoch 2" in told.stdout
        assert "pending" not in told.stdout
        assert self.ask("POST", "/v1/plane:confirm")[0] == 409, "once is enough"
        cancelled = self.ask("POST", f"/v1/operations/{self.pending}:cancel")
        assert cancelled[0] in {200, 202}, cancelled
        ended = self.ask("GET", f"/v1/operations/{self.pending}/wait?seconds=60")[1]
        assert ended["state"] == "COMPENSATED", ended
        now = truth(home)
        gone = {(s, k) for s in was for k, a in was[s].items() if a == uids["pending"]}
        left = {(s, k) for s in was for k in was[s]} - {(s, k) for s in now for k in now[s]}
        assert left == gone, "what the store undoes goes, and nothing else"
        undone = {key for slot, key in gone if slot == "runtime"}
        assert ran.keys() - running(home).keys() == undone, "its process has ended, and no other"

    def goes_on(self) -> None:
        """What is there can be used, and what is missing can be put in order."""
        uids = self.uids
        self.verb("stays", "suspend")
        self.verb("stays", "resume")
        status, token = self.mint()
        assert status == 200, token
        assert self.server.is_active(token["access_token"])
        assert not self.server.is_active(self.jwt)
        was = truth(self.plane.home)
        for _ in range(3):
            self.plane.run("reconcile", "drift")
        assert truth(self.plane.home) == was, "nothing that was deleted or suspended comes back"
        found = self.plane.run("finding", "list", "--reconciler", "drift").stdout
        assert "tenure agent delete goes" in found
        assert "tenure agent suspend closes" in found
        self.verb("goes", "delete")
        self.verb("closes", "suspend")
        self.verb("closes", "resume")
        held = truth(self.plane.home)
        assert all(uids["comes"] in keys.values() for keys in held.values()), "never deleted"
        assert not any(uids["goes"] in keys.values() for keys in held.values())
        seen = self.ask("GET", "/v1/plane/review")[1]
        assert (seen["missing"], seen["resumed"]) == ([], []), "the world is as the store says"
        assert {one["agent"] for one in seen["unknown"]} == {uids["comes"], uids["unfinished"]}
        self.plane.run("audit", "verify")
        self.plane.run("audit", "verify", "--head", self.late_head, code=1)
        actions = self.plane.run("audit", "list", "-o", "json").stdout
        assert '"plane.hold"' in actions
        assert '"plane.confirm"' in actions
