"""One worker process on any stack, for tests that kill it, stop it or cut it off.

usage: stack_worker SETTINGS DIRECTORY LIFE [MOST [SLOW [ABLATE [newer]]]]

SETTINGS is a JSON object of fields of `tenure.settings.Settings`.  It says `open`, `accepted ID
LABEL`, `ended ID STATE` and `idle`, a line each; its providers are shelves and books of files in
the directory, shared by all workers.  A negative MOST asks for so many effects that count; SLOW is
how long a runtime takes to answer, or `held`: until answers are let out.  ABLATE is a safeguard of
`tests.real.support.ablated_command` that this worker is without; a newer one is of the release
after this.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from proofs.kills.audit import AGAIN, LabelledRequest
from proofs.kills.kill9 import ask, say
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
from tenure.core.errors import StoreError
from tenure.core.plan import Plan
from tenure.settings import Settings
from tenure.wiring import run_plane
from tests.real.support.counting_services import COUNTING_PLANS
from tests.real.support.stacks import NEXT_PLANS, PLANS, providers_of

CLIENTS = 6
SLOW_SECONDS = 0.05


def off(ablate: str) -> AbstractContextManager[None]:
    """Without this safeguard, if one is named."""
    if not ablate:
        return nullcontext()
    from tests.real.support.ablated_command import OFF

    return OFF[ablate]


async def live(
    settings: Settings, directory: Path, life: int, most: int, *, slow: str, plans: Sequence[Plan]
) -> None:
    held = slow == "held"
    providers = providers_of(directory, slow=0.0 if held else float(slow), is_held=held)
    async with run_plane(settings, plans=plans, providers=providers) as plane:
        say("open")
        for number in range(-most):
            plan = COUNTING_PLANS[number % len(COUNTING_PLANS)].name
            accepted = await admission.accept(
                plane, OperationRequest(plan, input={"label": str(number)})
            )
            say("accepted", accepted.id, plan)
        numbers = range(max(0, most)) if most else itertools.count()
        again = [
            LabelledRequest(life - 1, number)
            for number in range(AGAIN if life and most >= 0 else 0)
        ]
        asked = itertools.chain(again, (LabelledRequest(life, number) for number in numbers))

        async def client() -> None:
            for wanted in asked:
                try:
                    await ask(plane, wanted)
                except StoreError:
                    await asyncio.sleep(0.1)  # the server is away: what was asked was not kept

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        say("idle")
        await asyncio.Event().wait()


if __name__ == "__main__":
    said, directory, life, *rest = sys.argv[1:]
    most = int(rest[0]) if rest else 0
    slow = rest[1] if rest[1:] else str(SLOW_SECONDS)
    plans = NEXT_PLANS if rest[3:] else PLANS
    settings = Settings(**json.loads(said))
    with off(rest[2] if rest[2:] else ""):
        asyncio.run(live(settings, Path(directory), int(life), most, slow=slow, plans=plans))
