"""Writes the pages of docs/reference that are made from the code; `make docs` runs it.

`PAGES` is every such page.  A test compares each with the file, so that none is stale.  The two
pages of ablations are measurements: `make docs MEASURE=1` measures and writes them too.

usage: python -m proofs.pages docs/reference
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from proofs import cli_reference, flow, python_reference
from tenure.core.agent import AGENT, MEANING, PERMISSIONS, AgentTrigger
from tenure.core.agent_events import AGENT_EVENTS
from tenure.core.operation import INTENT, OPERATION
from tenure.core.retry import POLICIES, RetryPolicy
from tenure.core.verb import VerbName
from tenure.faces.http import reference
from tenure.plans.agents.lifecycle import VERBS

RETRIES = """\
# Retries

Every backoff of the product is a `RetryPolicy` in `src/tenure/core/retry.py`. After n failed
attempts the next delay is `first × factor^(n - 1)` and at most the cap. Jitter takes away a random
part of a delay, up to the share that the table shows.

| policy | what is retried | first | cap | factor | jitter |
| ------ | --------------- | ----: | --: | -----: | -----: |
"""
DIAGRAM = re.compile(r"```mermaid\n.*?\n```", re.DOTALL)


def retries_page(policies: Mapping[str, RetryPolicy] = POLICIES) -> str:
    """docs/reference/retries.md."""
    rows = (
        f"| `{name}` | {policy.purpose} | {policy.first_seconds:g} s | {policy.cap_seconds:g} s"
        f" | {policy.factor:g} | {policy.jitter:.0%} |\n"
        for name, policy in policies.items()
    )
    return RETRIES + "".join(rows)


def states_page(text: str) -> str:
    """docs/reference/states.md: its diagrams, and the table of what an agent in a state does."""
    diagrams = iter([table.diagram() for table in (OPERATION, INTENT, AGENT)])
    text = DIAGRAM.sub(lambda _found: f"```mermaid\n{next(diagrams)}\n```", text)
    requests = {
        verb.accept_trigger: name.removesuffix("_agent")
        for name, verb in VERBS.items()
        if name != VerbName.RECOVER  # requested by a reconciler alone
    }
    rows = []
    for state, conduct in PERMISSIONS.items():
        verbs = {
            str(requests[AgentTrigger(by)])
            for before, by, _ in AGENT.rows
            if before is state and by in requests
        }
        serves, accepts = "yes" if conduct.serves else "no", ", ".join(sorted(verbs)) or "none"
        rows.append(f"| {state} | {serves} | {conduct.issues_tokens} | {accepts} |\n")
    return _with_rows(text, "| state | serves invocations | mints credentials | accepts |", rows)


def events_page(text: str) -> str:
    """docs/reference/events.md: the table of the events of an agent."""
    rows = [f"| `{event}` | {MEANING[state]} |\n" for state, event in AGENT_EVENTS.items()]
    return _with_rows(text, "| type | tells that the agent |", rows)


def _with_rows(text: str, head: str, rows: list[str]) -> str:
    """The page with these rows in the table that has this head."""
    table = re.compile(rf"({re.escape(head)}\n[| -]+\n)(?:\|[^\n]*\n)*")
    return table.sub(lambda found: found[1] + "".join(rows), text)


PAGES: Final[Mapping[str, Callable[[str], str]]] = {
    "cli.md": cli_reference.page,
    "http.md": lambda _text: reference.http_page(),
    "problems.md": lambda _text: reference.problems_page(),
    "flow.md": lambda _text: flow.page(),
    "python.md": lambda _text: python_reference.page(),
    "retries.md": lambda _text: retries_page(),
    "states.md": states_page,
    "events.md": events_page,
}
"""What each page should be, made from the text that it has now."""


def main(directory: str) -> None:
    """Write every page that differs, and name it."""
    for name, page in PAGES.items():
        path = Path(directory, name)
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        text = page(before)
        if text != before:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1])
