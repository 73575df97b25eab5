"""Tasks that run beside a block of code, and how they are ended.

`asyncio.TaskGroup` waits for its tasks when the block is left; the tasks here run for as long as
the block does, and are cancelled when it is left.  Everything above core may import this module,
and it imports nothing of ours.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

log = logging.getLogger("tenure")


@asynccontextmanager
async def background(
    work: Coroutine[Any, Any, Any], *, name: str, required: bool = False
) -> AsyncIterator[None]:
    """Run `work` while the block runs; then cancel it and wait for its end.

    If `work` fails the failure is logged and the block goes on.  If `work` is `required`, its
    failure ends the block and is raised from it.  If `work` returns, the block goes on.
    """
    host = cast("asyncio.Task[Any]", asyncio.current_task())
    failure: BaseException | None = None

    def on_end(task: "asyncio.Task[Any]") -> None:
        nonlocal failure
        failure = None if task.cancelled() else task.exception()
        if failure is None:
            return
        if required:
            host.cancel()
        else:
            log.error("%s failed and is not started again", name, exc_info=failure)

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(on_end)
    try:
        try:
            yield
        finally:
            task.remove_done_callback(on_end)
            await cancel_and_wait(task)
    except asyncio.CancelledError:
        if required and failure is not None and not host.uncancel():
            raise failure from None
        raise


async def cancel_and_wait(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel these tasks and wait until all have ended; how they ended is not raised."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
