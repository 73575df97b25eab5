"""Callers and operators: people outside the processes, who ask, ask again, and remember.

They cannot see whether a process is stopped, dead or slow.  What they were told goes to the
`Witness`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proofs.harness.rig import Process, Rig
from proofs.operations.history import Witness
from proofs.operations.scenarios import Wish
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.errors import CallerError, CommitUnknown, Conflict, NotFound, StoreError
from tenure.core.operation import OperationState
from tenure.testing.loop import Dead
from tenure.testing.operators import by
from tenure.testing.plans import SIGNAL

TENANT = "default"
ANSWER_SECONDS = 2.5
"""How long a caller waits for an answer before he asks elsewhere."""
BUSY_TRIES = 8
"""How often a caller asks again while another operation works on the agent."""
OPERATOR = by("an operator")

T = TypeVar("T")


class Callers:
    """Everybody who asks in one life."""

    def __init__(self, rig: Rig, witness: Witness) -> None:
        """Nobody has asked yet; `front` is set when there is such a process."""
        self.front: Process | None = None
        self._rig = rig
        self._witness = witness

    async def someone(self) -> Process:
        """A process to ask: a caller cannot see whether it is stopped."""
        if self.front is not None and self._rig.loop.random.random() < 0.7:
            return self.front
        return await self._rig.someone()

    async def _ask(self, question: Callable[[Plane], Awaitable[T]]) -> T:
        """Ask until there is an answer; a refusal is one, "not kept" is not."""
        while True:
            process = await self.someone()
            try:
                return await asyncio.wait_for(process.ask(question), ANSWER_SECONDS)
            except (Dead, CommitUnknown, StoreError, TimeoutError):
                await asyncio.sleep(0.1)

    async def ask_kindly(self, question: Callable[[Plane], Awaitable[OperationView]]) -> bool:
        """The same, and whether it was not refused."""
        try:
            self._witness.saw(await self._ask(question))
        except NotFound:
            raise
        except CallerError:
            return False
        return True

    async def wish(self, wish: Wish) -> None:
        try:
            await self._pursue(wish)
        except NotFound as gone:
            self._witness.wrong.append(f"acknowledged_are_kept: a caller was told that {gone}")

    async def _pursue(self, wish: Wish) -> None:
        await asyncio.sleep(wish.at)
        asked = [self._accept(wish)]
        if wish.twice_after is not None:
            asked.append(self._again(wish, wish.twice_after))
        accepted, *_ = await asyncio.gather(*asked)
        if accepted is None:
            return
        later: list[Awaitable[None]] = []
        name = accepted.id
        if wish.cancel_after is not None:
            later.append(self._cancel(name, wish.cancel_after))
            if wish.cancel_twice:
                later.append(self._cancel(name, wish.cancel_after + 0.01))
        later += [self._signal(name, after) for after in wish.signals]
        if wish.operator in {"retry", "abandon"}:
            later.append(self._operate(name, wish))
        await asyncio.gather(*later)

    async def _again(self, wish: Wish, after: float) -> OperationView | None:
        await asyncio.sleep(after)
        return await self._accept(wish)

    async def _accept(self, wish: Wish) -> OperationView | None:
        """Ask for it until it is acknowledged or refused; without a key, once."""
        key = f"wish {wish.number}" if wish.keyed else ""
        command = admission.Accept(
            wish.plan, wish.agent, {"wish": wish.number}, idempotency_key=key
        )
        tries = 0
        while True:
            tries += 1
            try:
                if wish.keyed:
                    seen = await self._ask(lambda plane: admission.accept(plane, command))
                else:
                    process = await self.someone()
                    seen = await asyncio.wait_for(
                        process.ask(lambda plane: admission.accept(plane, command)), ANSWER_SECONDS
                    )
            except Conflict as conflict:
                if conflict.code != "operation_in_progress" or tries > BUSY_TRIES:
                    return None
                await asyncio.sleep(0.5 * tries)
            except StoreError:
                self._witness.told.not_kept.add(wish.number)
                return None
            except (Dead, CommitUnknown, TimeoutError):
                return None
            else:
                self._witness.told.accepted[seen.id] = wish.number
                self._witness.saw(seen)
                return seen

    async def _cancel(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        if await self.ask_kindly(lambda plane: operations.cancel(plane, by("the caller"), name)):
            self._witness.told.cancelled.add(name)

    async def _signal(self, name: str, after: float) -> None:
        await asyncio.sleep(after)
        if await self.ask_kindly(
            lambda plane: operations.signal(plane, by("a friend"), name, name=SIGNAL)
        ):
            self._witness.told.signalled[name] += 1

    async def _operate(self, name: str, wish: Wish) -> None:
        """Wait until it ends or is stuck, then say retry or abandon."""
        verb = operations.retry if wish.operator == "retry" else operations.abandon
        for _ in range(12):
            seen = await self._ask(lambda plane: reads.wait(plane, TENANT, name, seconds=2.0))
            self._witness.saw(seen)
            if seen.done:
                return
            if seen.state is OperationState.STUCK:
                await asyncio.sleep(wish.operator_after)
                await self.ask_kindly(lambda plane: verb(plane, OPERATOR, name))
                return

    async def resolve(self, name: str) -> None:
        """An operator says of what is stuck what the world says, who has looked at nothing else."""
        await self.ask_kindly(lambda plane: self._speak(plane, name))

    async def _speak(self, plane: Plane, name: str) -> OperationView:
        seen = await reads.get_operation(plane, TENANT, name)
        going_back = any(step.state is not None and step.state == "REMOVING" for step in seen.steps)
        for step in seen.steps:
            if not step.stuck:
                continue
            there = [t for t in self._rig.world.things.values() if t.key.text == step.key]
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
