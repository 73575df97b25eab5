"""Draws an operation on a terminal: its steps with their marks, redrawn when they change.

It is imported only if there is a terminal: rich takes longer to import than most commands run.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tenure.faces.cli.output import escape_control
from tenure.faces.cli.progress import MARKS, PENDING, SETTLED_STATES, OperationProgress

REFRESHES_PER_SECOND = 12.5
DETAIL_CHARACTERS_MAX = 200


@contextmanager
def live_picture(
    progress_state: OperationProgress, title: str, started_at: float, *, utf8: bool
) -> Iterator[None]:
    """Draw the current progress while the block runs; the last picture stays on the terminal."""
    console = Console(file=sys.stderr, highlight=False)
    spinner = Spinner("dots" if utf8 else "line", style="cyan")

    def now() -> Table:
        return steps(
            progress_state, title, seconds=time.monotonic() - started_at, utf8=utf8, spinner=spinner
        )

    with Live(
        get_renderable=now,
        console=console,
        refresh_per_second=REFRESHES_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def steps(
    progress_state: OperationProgress,
    title: str,
    *,
    seconds: float,
    utf8: bool,
    spinner: Spinner | None = None,
) -> Table:
    """The picture as a table: a mark, the step, and why it is not done."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    undoing = progress_state.undoing and progress_state.state not in SETTLED_STATES
    note = (
        "is being undone"
        if undoing
        else progress_state.wait_reason
        if progress_state.state == PENDING
        else ""
    )
    head = Text(escape_control(title), style="bold")
    table.add_row("", head, Text(f"{seconds:.1f} s {note}".rstrip(), style="bright_black"))
    running = progress_state.running()
    for name, fate in progress_state.fates.items():
        fate = "running" if name == running else fate  # noqa: PLW2901 (a default overridden)
        mark = MARKS[fate]
        sign: object = Text(mark.sign if utf8 else mark.ascii, style=mark.colour)
        if (
            fate in {"running", "undoing"}
            and spinner is not None
            and progress_state.state not in SETTLED_STATES
        ):
            sign = spinner
        words = {"undoing": "being undone", "undone": "undone", "stuck": "stuck"}.get(fate, "")
        lines = progress_state.details.get(name, "").splitlines() or [""]
        detail = escape_control(lines[0])[:DETAIL_CHARACTERS_MAX]
        shown = detail if fate in {"running", "undoing", "refused", "stuck"} else ""
        table.add_row(
            sign,  # type: ignore[arg-type]
            Text(name, style="" if fate else "bright_black"),
            Text(": ".join(filter(None, [words, shown])), style=mark.colour),
        )
    return table
