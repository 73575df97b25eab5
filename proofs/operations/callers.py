"""Callers and operators: people outside the processes, who ask, ask again, and remember.

They cannot see whether a process is stopped, dead or slow.  What they were told goes to the
`CallerHistory`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proofs.harness.simulation import ANSWER_SECONDS, Simulation
from proofs.harness.snapshot import TENANT
from proofs.operations.history import CallerHistory
from proofs.operations.profiles import Request
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.errors import CallerError, CommitUnknown, Conflict, NotFound, StoreError
from tenure.core.operation import OperationState
from tenure.testing.loop import Dead
from tenure.testing.operators import by
from tenure.testing.plans import SIGNAL

BUSY_TRIES = 8
"""How often a caller asks again while another operation works on the agent."""
OPERATOR = by("an operator")

T = TypeVar("T")


class Callers:
    """Everybody who asks in one run."""

    def __init__(self, run: Simulation, history: CallerHistory) -> None:
        """Nobody has asked yet."""
        self._run = run
        self._history = history

    async def _ask(self, question: Callable[[Plane], Awaitable[T]]) -> T:
        """Ask until there is an answer; a refusal is one, "not kept" is not."""
        while True:
            process = await self._run.process_for_caller()
            try:
                return await asyncio.wait_for(process.ask(question), ANSWER_SECONDS)
            except (Dead, CommitUnknown, StoreError, TimeoutError):
                await asyncio.sleep(0.1)

    async def ask_unless_refused(
        self, question: Callable[[Plane], Awaitable[OperationView]]
    ) -> bool:
        """The same, and whether it was not refused."""
        try:
            self._history.add(await self._ask(question))
        except NotFound:
            raise
        except CallerError:
            return False
        return True

    async def pursue(self, request: Request) -> None:
        """Ask for what the request says, and do with it what it says."""
        try:
            await self._pursue(request)
        except NotFound as gone:
            self._history.wrong.append(f"acknowledged_are_kept: a caller was told that {gone}")

    async def _pursue(self, request: Request) -> None:
        await asyncio.sleep(request.at)
        asked = [self._accept(request)]
        if request.twice_after is not None:
            asked.append(self._again(request, request.twice_after))
        accepted, *_ = await asyncio.gather(*asked)
        if accepted is None:
            return
        later: list[Awaitable[None]] = []
        name = accepted.id
        if request.cancel_after is not None:
            later.append(self._cancel(name, request.cancel_after))
            if request.cancel_twice:
                later.append(self._cancel(name, request.cancel_after + 0.01))
        later += [self._signal(name, after) for after in request.signals]
        if request.operator in {"retry", "abandon"}:
            later.append(self._operate(name, request))
        await asyncio.gather(*later)

    async def _again(self, request: Request, after: float) -> OperationView | None:
        await asyncio.sleep(after)
        return await self._accept(request)

    async def _accept(self, request: Request) -> OperationView | None:
        """Ask for it until it is acknowledged or refused; without a key, once."""
        key = f"request {request.number}" if request.keyed else ""
        command = admission.OperationRequest(
            request.plan, request.agent, {"request": request.number}, idempotency_key=key
        )
        tries = 0
        while True:
            tries += 1
            try:
                if request.keyed:
                    seen = await self._ask(lambda plane: admission.accept(plane, command))
                else:
                    process = await self._run.process_for_caller()
                    seen = await asyncio.wait_for(
                        process.ask(lambda plane: admission.accept(plane, command)), ANSWER_SECONDS
                    )
            except Conflict as conflict:
                if conflict.code != "operation_in_progress" or tries > BUSY_TRIES:
                    return None
                await asyncio.sleep(0.5 * tries)
            except StoreError:
                self._history.not_kept.add(request.number)
                return None
            except (Dead, CommitUnknown, TimeoutError):
                return None
            else:
                self._history.accepted[seen.id] = request.number
                self._history.add(seen)
                return seen

    async def _cancel(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        if await self.ask_unless_refused(
            lambda plane: operations.cancel(plane, by("the caller"), name)
        ):
            self._history.cancelled.add(name)

    async def _signal(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        if await self.ask_unless_refused(
            lambda plane: operations.signal(plane, by("a friend"), name, name=SIGNAL)
        ):
            self._history.signalled[name] += 1

    async def _operate(self, name: str, request: Request) -> None:
        """Wait until it ends or is stuck, then say retry or abandon."""
        verb = operations.retry if request.operator == "retry" else operations.abandon
        for _ in range(12):
            seen = await self._ask(lambda plane: reads.wait(plane, TENANT, name, seconds=2.0))
            self._history.add(seen)
            if seen.done:
                return
            if seen.state is OperationState.STUCK:
                await asyncio.sleep(request.operator_after)
                await self.ask_unless_refused(lambda plane: verb(plane, OPERATOR, name))
                return

    async def resolve(self, name: str) -> None:
        """An operator says of what is stuck what the world says, who has looked at nothing else."""
        await self.ask_unless_refused(lambda plane: self._resolve(plane, name))

    async def _resolve(self, plane: Plane, name: str) -> OperationView:
        seen = await reads.get_operation(plane, TENANT, name)
        going_back = any(step.state is not None and step.state == "REMOVING" for step in seen.steps)
        for step in seen.steps:
            if not step.stuck:
                continue
            there = [t for t in self._run.world.things.values() if t.key.text == step.key]
            ours = [thing for thing in there if thing.key.agent]
            if ours and going_back and step.state == "REMOVING":
                seen = await operations.retry(plane, OPERATOR, name)
            elif ours and not going_back:
                seen = await operations.adopt(
                    plane, OPERATOR, name, step=step.name, result={"key": step.key}
                )
            else:
                seen = await operations.mark_absent(plane, OPERATOR, name, step=step.name)
        return seen
