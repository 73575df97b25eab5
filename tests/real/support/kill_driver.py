"""The hand that kills a control plane: inside a chosen step, or at any instant; then looks.

The plane is killed at a chosen step without a hook in it: it is let run for a fraction of a
millisecond at a time (SIGCONT, SIGSTOP), and between two of these its store is read.  A kill counts
for the steps that the dead store says were intended and had no end.  After every restart all that
was promised must have ended, and a checker that knows nothing of Tenure must find the world in
order.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from tenure.plans.agents import lifecycle
from tests.real.support import resource_checker, runtimes
from tests.real.support.control_plane import (
    MOVING,
    SETTLE_SECONDS,
    UNDOS,
    ControlPlane,
    PipelinedConnection,
    Watch,
    lapse_lead,
    lock_store,
)
from tests.real.support.in_flight_steps import steps_in_flight

AGENT = Path(__file__).parent / "agents" / "quick.py"
SLICE_SECONDS = 0.0002
"""For which the plane runs before it is looked at again."""
RUN_SECONDS = 20.0
ATTEMPTS = 60
"""To catch a step that is over in less than a millisecond on a machine with much else to do."""
FLEET = 8
"""Agents that there should be, or about so many."""
OPEN = (*MOVING, "STUCK")
PLANS = {plan.name: tuple(plan.steps) for plan in lifecycle.PLANS}
"""The steps of each plan, in order."""
REQUESTED_PLANS: tuple[str, ...] = tuple(name for name in PLANS if name != "recover_runtime")
"""Plans that a caller can ask for; the other one is asked for when a runtime has died."""
HELD = {
    "identity": "identity",
    "access": "access",
    "credentials": "credentials",
    "closed": "credentials",
    "opened": "credentials",
}
"""Steps that a lock on a provider's file keeps from ending."""


class How(StrEnum):
    """What happens between the moment a step is seen to be intended and the kill."""

    AT_ONCE = "at once"
    A_LITTLE_LATER = "a little later"
    UNRECORDED = "its call is applied, its record cannot be"
    REFUSED = "its provider is busy"


def promise(operation: dict[str, Any]) -> resource_checker.Promise:
    """What was acknowledged by this body of a 202."""
    return resource_checker.Promise(operation["id"], operation["kind"], operation["agent"])


@contextmanager
def quick() -> Iterator[None]:
    """Run before others where that is allowed, so that less of what is hunted gets away."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -15)
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def ways(step: str) -> list[How]:
    """The ways to die in this step, those first that never miss it."""
    return [How.AT_ONCE, How.UNRECORDED, How.A_LITTLE_LATER] + [How.REFUSED] * (step in HELD)


class Driver:
    """Asks for operations, kills the plane inside their steps, and has the checker look."""

    def __init__(self, home: Path, *, seed: int) -> None:
        self.plane = ControlPlane(home)
        self.chance = random.Random(seed)
        self.promises: list[resource_checker.Promise] = []
        self.inside: Counter[str] = Counter()
        """Kills by the steps that were under way."""
        self.kills = 0
        self.slowest_seconds = 0.0
        self._made = 0
        self._fleet: list[dict[str, Any]] = []

    # ------------------------------------------------------------------------------------- kills

    def kill_inside(self, plan: str, step: str, how: How) -> None:
        """Ask for this plan and others, kill the plane in the step, start it and see to it all.

        A step that was over too soon to be caught is tried for again, with other agents.
        """
        for attempt in range(ATTEMPTS):
            lines = self._ask_for(plan, step, others=0 if attempt > 3 else 3)
            if self._was_caught(plan, step, how):
                self._note(lines, is_locked=True)
                break
            self.plane.tell(signal.SIGCONT)
            self._note(lines, is_locked=True)
            self._await_quiet(since=time.monotonic())  # nothing holds it up from here on
            self._fleet = self._list_agents()
            self._thin_out()
        else:
            raise AssertionError(f"{plan}/{step} was never caught")
        self._restart_after_death()
        self.recover()

    def _was_caught(self, plan: str, step: str, how: How) -> bool:
        """Whether the plane was caught in this step, and killed."""
        with ExitStack() as stack:
            watch = stack.enter_context(closing(Watch(self.plane)))
            with quick():
                caught = self._run_until(watch, plan, step)
            if caught:
                if how is How.REFUSED and step in HELD:  # not before: `closed` needs the same file
                    stack.enter_context(lock_store(self.plane.home / f"{HELD[step]}.db"))
                self._linger(watch, step, how)
                self.plane.kill()
        return caught

    def kill_at_random(self, seconds: float) -> None:
        """Ask for a few operations and kill the plane a little later."""
        lines = self._ask_for(self.chance.choice(REQUESTED_PLANS), "")
        self.plane.tell(signal.SIGCONT)
        time.sleep(self.chance.uniform(0.0, seconds))
        self.plane.kill()
        self._note(lines)
        self._restart_after_death()
        if self.chance.random() < 0.5:  # and once more while it comes up again
            self.plane.begin()
            time.sleep(self.chance.uniform(0.0, 1.2))
            self.plane.kill()
            self._restart_after_death()
        self.recover()

    def _run_until(self, watch: Watch, plan: str, step: str) -> bool:
        """Let the plane run, a little at a time, until this step is intended and has no end.

        It then stands still, and the end cannot be recorded: its store is held.
        """
        until = time.monotonic() + RUN_SECONDS
        target, before = f"{plan}/{step}", _previous_step(plan, step)
        busy, near = False, not before
        while time.monotonic() < until:
            self.plane.tell(signal.SIGCONT)
            if not near:
                time.sleep(SLICE_SECONDS)
            held = near and watch.hold_after_commit()
            self.plane.tell(signal.SIGSTOP)
            seen = watch.steps()
            if target in seen and (held or watch.hold()):
                return True
            if held:
                watch.let_go()
            near = not before or before in seen or target in seen
            if busy and not seen and watch.is_quiet():
                return False
            busy = busy or bool(seen)
        return False

    def _linger(self, watch: Watch, step: str, how: How) -> None:
        """What is let happen before the kill."""
        match how:
            case How.AT_ONCE:
                return
            case How.A_LITTLE_LATER:
                watch.let_go()
                seconds = 0.003
            case How.UNRECORDED:
                seconds = 0.15 if "runtime" in step or step == "killed" else 0.03
            case _:
                watch.let_go()
                seconds = 0.3
        self.plane.tell(signal.SIGCONT)
        time.sleep(self.chance.uniform(0.0, seconds))

    def _note(self, lines: Sequence[PipelinedConnection], *, is_locked: bool = False) -> None:
        """Write down what was promised."""
        others = {200, 404, 409} | ({503} if is_locked else set())  # 200: reconcilers have looked
        for line in lines:
            for answer in line.answers():
                if answer.status == 202:
                    self.promises.append(promise(answer.body))
                else:
                    assert answer.status in others, answer
            line.close()

    def _restart_after_death(self) -> None:
        """Write down where the dead plane stood."""
        self.kills += 1
        self.inside.update(steps_in_flight(self.plane.home))

    def recover(self) -> None:
        """Start the plane; within a bounded time everything has ended and is as it should be."""
        self.plane.start()
        while True:
            self._await_quiet(since=self.plane.started_at)
            items = self._list_agents()
            listed = {item["name"]: item["state"] for item in items}
            wrong = resource_checker.check(self.plane.home, self.promises, listed_agents=listed)
            took = time.monotonic() - self.plane.started_at
            self.slowest_seconds = max(self.slowest_seconds, took)
            if not wrong:
                self._fleet = items
                return
            assert took < SETTLE_SECONDS, "\n".join(wrong)

    def _list_agents(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.plane.ask("GET", "/v1/agents?limit=1000").body["items"]
        return items

    def _await_quiet(self, *, since: float) -> None:
        asked = "/v1/operations?limit=10&" + "&".join(f"state={state}" for state in OPEN)
        while left := self.plane.ask("GET", asked).body["items"]:
            took = time.monotonic() - since
            assert took < SETTLE_SECONDS, left
            time.sleep(0.02)

    # ---------------------------------------------------------------------------------- requests

    def _ask_for(self, plan: str, step: str, *, others: int = 3) -> list[PipelinedConnection]:
        """Have requests for this plan, and for some others, lie before a plane that stands still.

        Whatever agents they take are then nobody else's until the fleet is listed again.
        """
        wanted = [self._request(plan, step)]
        for _ in range(self.chance.randint(min(others, 1), others)):
            wanted.append(self._request(self._usual(), ""))
        self.plane.tell(signal.SIGSTOP)
        lines = []
        for requests in wanted:
            line = PipelinedConnection(self.plane)
            for method, path, body in requests:
                line.send(method, path, body)
            lines.append(line)
        return lines

    def _usual(self) -> str:
        """What keeps a fleet of a few agents in all states."""
        if len(self._fleet) < FLEET // 2:
            return "create_agent"
        if len(self._fleet) > FLEET:
            return "delete_agent"
        return self.chance.choice(REQUESTED_PLANS)

    def _request(self, plan: str, step: str) -> list[tuple[str, str, object]]:
        if plan == "create_agent":
            return self._create(step)
        if plan == "recover_runtime":
            return self._recovery(self._take({"READY"}, is_needed=True))
        states = {"resume_agent": {"SUSPENDED"}, "suspend_agent": {"READY"}}
        wide = {"READY", "SUSPENDED"} | ({"CREATE_FAILED"} if plan == "delete_agent" else set())
        path = f"/v1/agents/{self._take(states.get(plan, wide), is_needed=bool(step))}"
        if path.endswith("/"):
            return self._create("")
        body = {"drain_seconds": 0.3, "keep_runtime": self.chance.random() < 0.2}
        if step == "runtime":
            body["keep_runtime"] = False
        verbs: dict[str, list[tuple[str, str, object]]] = {
            "suspend_agent": [("POST", f"{path}:suspend", body)],
            "resume_agent": [("POST", f"{path}:resume", None)],
            "stop_agent": [("POST", f"{path}:stop", None)],
            "delete_agent": [("DELETE", f"{path}?drain_seconds=0.3", None)],
        }
        return verbs[plan]

    def _recovery(self, name: str) -> list[tuple[str, str, object]]:
        """Kill the runtime of this agent and have that seen; at the second look it is replaced.

        Whoever led the reconcilers before the last kill would be waited for: that is taken out.
        """
        world = resource_checker.read_world(self.plane.home)
        (serving,) = [
            row["serving"]
            for row in world.store["agent"]
            if row["name"] == name and row["state"] != "DELETED"
        ]
        key = json.loads(serving)["key"]
        look = ("POST", "/v1/findings:reconcile", {"name": "drift"})
        pids = [process.pid for process in world.processes if process.key == key]
        if pids:  # none: it was seen to be dead at an attempt before
            os.kill(world.homes[key].state["keeper"], signal.SIGKILL)
            assert runtimes.until(lambda: not any(map(runtimes.is_alive, pids)))
            lapse_lead(self.plane.home / "tenure.db")
            answer = self.plane.ask(*look)
            assert answer.status == 200, answer
        return [look]

    def _create(self, step: str) -> list[tuple[str, str, object]]:
        """Mostly good ones; some that break, never answer, or are deleted while they are made."""
        mode = self.chance.choice(["healthy", "healthy", "healthy", "busy", "exits", "silent"])
        if step in {"credentials", "exposed"}:
            mode = "healthy"
        if step in UNDOS:
            mode = "exits"
        spec = self.spec(mode)
        requests: list[tuple[str, str, object]] = [("POST", "/v1/agents", spec)]
        if not step and self.chance.random() < 0.3:
            requests.append(("DELETE", f"/v1/agents/{spec['name']}", None))
        return requests

    def spec(self, mode: str) -> dict[str, Any]:
        """One more agent that behaves so, see `agents/quick.py`."""
        self._made += 1
        owners = [one["name"] for one in self._fleet if one["state"] == "READY"]
        parent = {"parent": owners[0]} if owners and self.chance.random() < 0.2 else {}
        return {
            "name": f"agent-{self._made}",
            "runtime": {
                "command": [sys.executable, "-I", "-S", str(AGENT)],
                "env": {"MODE": mode},
                "zone": self.chance.choice(resource_checker.ZONES),
                "ready_seconds": 0.5 if mode == "silent" else 120.0,
                "drain_seconds": 0.3,
            },
            "roles": ["reader", "writer"][: self.chance.randint(0, 2)],
            "teams": ["blue"][: self.chance.randint(0, 1)],
            "credentials": [
                {"audience": f"https://{n}.example", "scopes": ["a:read"], "ttl_seconds": 60 + n}
                for n in range(self.chance.randint(0, 2))
            ],
            **parent,
        }

    def _take(self, states: set[str], *, is_needed: bool) -> str:
        """The name of an agent in one of these states, which is then nobody else's this time."""
        if found := self._in(states):
            one = self.chance.choice(found)
            self._fleet.remove(one)
            return str(one["name"])
        if not is_needed:
            return ""
        for other, verb in (("READY", "suspend"), ("SUSPENDED", "resume")):
            if other not in states and (found := self._in({other})):
                self._fleet.remove(found[0])
                name = str(found[0]["name"])
                self._succeed("POST", f"/v1/agents/{name}:{verb}")
                return name
        spec = self.spec("healthy")
        self._succeed("POST", "/v1/agents", spec)
        if "READY" not in states:
            self._succeed("POST", f"/v1/agents/{spec['name']}:suspend")
        return str(spec["name"])

    def _in(self, states: set[str]) -> list[dict[str, Any]]:
        return [one for one in self._fleet if one["state"] in states]

    def _succeed(self, method: str, path: str, body: object = None) -> None:
        """Ask for what must succeed, and wait for it."""
        ended = self.plane.request_and_wait(method, path, body)
        assert ended["state"] == "SUCCEEDED", ended

    def _thin_out(self) -> None:
        """Delete what is too much: each agent takes its part of the machine."""
        for one in self._fleet[2 * FLEET :]:
            answer = self.plane.ask("DELETE", f"/v1/agents/{one['name']}?drain_seconds=0", wait=60)
            assert answer.status in {202, 404, 409}, answer  # its parent may have taken it along
        self._await_quiet(since=time.monotonic())
        del self._fleet[2 * FLEET :]


def _previous_step(plan: str, step: str) -> str:
    """The step that comes before this one, if any."""
    order = [f"-{name}" for name in reversed(PLANS[plan])] if step[0] == "-" else PLANS[plan]
    at = order.index(step)
    return f"{plan}/{order[at - 1]}" if at else ""
