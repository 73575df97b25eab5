"""The Restate handler that performs one operation; granian serves it, engines/restate.py calls it.

Undos are registered before their step is called and run in reverse order, as the vendor's guide to
sagas shows. The path of the sink comes in the environment, since this runs in a worker of granian.
"""

import os
from pathlib import Path

import meter
import restate
from restate.exceptions import TerminalError

SINK = meter.Sink(Path(os.environ["OPERATIONS_SINK"]))
operations = restate.Service("Operations")


async def do(number: int, name: str, refuse: bool) -> dict:
    SINK.append(name, str(number))
    if refuse:
        raise TerminalError("refused")
    return {"step": number, "operation": name, "ok": True}


async def undo(number: int, name: str) -> dict:
    SINK.append(name, f"undo-{number}")
    return {"undone": number, "operation": name, "ok": True}


@operations.handler()
async def perform(context: restate.Context, request: dict) -> dict:
    name, to_undo = request["name"], []
    try:
        for number in (1, 2, 3, 4):
            if number in meter.UNDONE_STEPS:
                to_undo.append(number)
            refuse = request["fail"] and number == meter.REFUSED_STEP
            await context.run_typed(f"do-{number}", do, number=number, name=name, refuse=refuse)
    except TerminalError:
        for number in reversed(to_undo):
            await context.run_typed(f"undo-{number}", undo, number=number, name=name)
        return {"outcome": "compensated"}
    return {"outcome": "succeeded"}


app = restate.app([operations])
