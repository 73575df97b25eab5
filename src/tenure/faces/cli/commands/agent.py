"""`tenure agent`: creates, lists, shows, invokes, suspends, resumes, stops and deletes agents."""

import shlex
import sys
from collections import deque
from pathlib import Path
from typing import Any

import click

from tenure.core.agent import AGENT, AgentState
from tenure.core.instant import in_utc
from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.follow_operation import wait_and_report
from tenure.faces.cli.options import (
    NounGroup,
    WaitOptions,
    confirm,
    examples,
    output_option,
    pairs,
    wait_options,
    with_client,
)
from tenure.faces.cli.output import (
    TABLES,
    Item,
    escape_control,
    print_agent_output,
    say,
    show,
    show_all,
)

NAMED_MAX = 10
"""How many sub-agents the confirmation names; for the others it gives only the number."""
STATES = tuple(str(state) for state in AgentState if state not in AGENT.final)
"""The states by which agents can be listed; deleted agents are never listed."""


@click.group(
    "agent",
    cls=NounGroup,
    epilog=examples(
        "tenure agent create hello --command 'python3 agent.py'",
        'tenure agent invoke hello \'{"prompt": "hi"}\'',
        "tenure agent delete hello",
    ),
)
def command() -> None:
    """Create, show, invoke and delete agents."""


@command.command(
    "create",
    epilog=examples(
        "tenure agent create hello --command 'python3 agent.py'",
        "tenure agent create -f agent.yaml",
        "tenure agent create hello --command ./serve --bundle app --env MODE=fast",
    ),
)
@click.argument("name", required=False)
@click.option(
    "-f", "--file", metavar="FILE", help="The file with the agent's spec; - is standard input."
)
@click.option(
    "--command", metavar="TEXT", help="The program to run; it must answer /ping and /invocations."
)
@click.option("--bundle", metavar="DIR", help="A directory; the agent runs in a copy of it.")
@click.option(
    "--env", multiple=True, callback=pairs, metavar="K=V", help="An environment variable."
)
@click.option("--label", multiple=True, callback=pairs, metavar="K=V", help="A label.")
@click.option("--role", multiple=True, metavar="ROLE", help="A role to grant.")
@click.option("--team", multiple=True, metavar="TEAM", help="A team to join.")
@click.option("--owner", metavar="TEXT", help="The owner, as free text.")
@click.option(
    "--parent",
    metavar="NAME",
    help="The agent that owns this one; if it is deleted, so is this one.",
)
@click.option("--zone", metavar="NAME", help="The zone to run in.")
@click.option(
    "--ready-seconds", type=float, metavar="N", help="The longest time that a start may take."
)
@click.option(
    "--drain-seconds",
    type=float,
    metavar="N",
    help="The longest time that a drain waits for work in flight.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show the steps and their compensations; change nothing."
)
@wait_options
@output_option
@with_client
def create(
    client: Client, *, name: str | None, file: str | None, dry_run: bool, waits: WaitOptions,
    form: str,
    **options: Any,  # noqa: ANN401 (one for each field of a file)
) -> None:  # fmt: skip
    """Create an agent and wait until it answers.

    If a step fails, all finished steps are undone, and the reason is printed.
    """
    from tenure.faces.cli import files

    tree = _spec_tree(name, file, options)
    spec = files.check(tree, source=file or files.COMMAND_LINE)
    for note in files.missing_scripts(spec):
        say(f"warning: {escape_control(note)}")
    query = {"dry_run": True} if dry_run else None
    answer = client.send("POST", path("agents"), body=spec, query=query, agent=str(spec["name"]))
    if dry_run:
        show_all(answer["steps"], nouns.PLANNED_STEP, form=form)
        if answer["warnings"]:
            warnings = "; ".join(answer["warnings"])
            raise CommandExit(Exit.FAILED, f"the create would be undone: {warnings}")
        return
    wait_and_report(
        client, answer, waits=waits, form=form, name=str(spec["name"]),
        success=f"agent {spec['name']} is READY",
    )  # fmt: skip


def _spec_tree(name: str | None, file: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The agent's spec, from its file or from the options."""
    from tenure.faces.cli import files

    if file is not None:
        extra = [option for option, value in options.items() if value]
        if extra:
            option = extra[0].replace("_", "-")
            raise click.UsageError(f"--{option} cannot be used with --file: put it into {file}")
        found = files.read(file)
        if len(found) != 1:
            raise click.UsageError(
                f"{file} contains {len(found)} agents; tenure apply creates them all"
            )
        tree: dict[str, Any] = found[0].tree
        return {**tree, "name": name} if name else tree
    if not name or not options["command"]:
        raise click.UsageError("give a NAME and --command, or -f FILE")
    try:
        command_parts = shlex.split(options["command"])
    except ValueError as error:
        raise click.BadParameter(f"{error}", param_hint="--command") from None
    runtime = {"command": command_parts}
    runtime |= {
        key: options[key]
        for key in ("bundle", "env", "zone", "ready_seconds", "drain_seconds")
        if options[key] not in (None, {})
    }
    tree = {"name": name, "runtime": runtime}
    for key, option in (
        ("labels", "label"), ("roles", "role"), ("teams", "team"), ("owner", "owner"),
        ("parent", "parent"),
    ):  # fmt: skip
        if options[option]:
            value = options[option]
            tree[key] = list(value) if isinstance(value, tuple) else value
    return files.resolve_paths(tree, Path.cwd())


@command.command(
    "list",
    epilog=examples(
        "tenure agent list -l team=ops",
        "tenure agent list --state READY -o name",
    ),
)
@click.option("--state", multiple=True, type=click.Choice(STATES, case_sensitive=False),
              metavar="STATE", help="List only agents in this state.")  # fmt: skip
@click.option(
    "-l", "--selector", multiple=True, metavar="K=V", help="List only agents with this label."
)
@output_option
@with_client
def list_agents(
    client: Client, *, state: tuple[str, ...], selector: tuple[str, ...], form: str
) -> None:
    """List agents by name."""
    query = {"state": [one.upper() for one in state], "label": list(selector)}
    show_all(list(client.pages(path("agents"), query)), nouns.AGENT, form=form)


@command.command(
    "show", epilog=examples("tenure agent show hello", "tenure agent show hello --resources")
)
@click.argument("name")
@click.option("--resources", is_flag=True, help="List its resources at the providers.")
@output_option
@with_client
def show_agent(client: Client, *, name: str, resources: bool, form: str) -> None:
    """Show one agent, by name or uid; for a failed agent also the reason."""
    if resources:
        found = client.get(path("agents", name, "resources"))
        show_all(found["items"], nouns.RESOURCE, form=form)
        return

    def text(agent: Item) -> str:
        parent = client.get(path("agents", agent["parent"]))["name"] if agent["parent"] else ""
        failed: deque[Item] = deque(maxlen=1)
        if agent["state"].endswith("_FAILED"):
            failed.extend(client.pages(path("operations"), {"agent": agent["uid"]}))
        return nouns.agent_text(
            agent, parent=parent, failed_operation=failed[0] if failed else None
        )

    show(client.get(path("agents", name)), nouns.AGENT, form=form, text=text)


def _drain(value: float | None) -> dict[str, float]:
    return {} if value is None else {"drain_seconds": value}


def _queue(*, value: bool) -> dict[str, str]:
    return {"queue": "true"} if value else {}


DRAIN = click.option(
    "--drain", type=click.FloatRange(0, 3_600), metavar="SECONDS",
    help="How long to wait for work in flight; 0 does not wait.",
)  # fmt: skip

QUEUE = click.option(
    "--queue", is_flag=True, help="If another operation has the agent's lock, wait for it."
)


@command.command(
    "suspend",
    epilog=examples(
        "tenure agent suspend hello",
        "tenure agent suspend hello --drain 5",
        "tenure agent suspend hello --queue --no-wait",
    ),
)
@click.argument("name")
@click.option("--keep-runtime", is_flag=True, help="Keep its process running.")
@DRAIN
@QUEUE
@wait_options
@output_option
@with_client
def suspend(
    client: Client, *, name: str, keep_runtime: bool, drain: float | None, queue: bool,
    waits: WaitOptions, form: str,
) -> None:  # fmt: skip
    """Close an agent, wait for its work in flight and remove its runtime.

    Its identity, its access and its files stay; `resume` starts it again.

    Its sub-agents are not suspended.
    """
    answer = client.send(
        "POST", path("agents", name, verb="suspend"), query=_queue(value=queue),
        body={"keep_runtime": keep_runtime, **_drain(drain)}, agent=name,
    )  # fmt: skip
    wait_and_report(
        client, answer, waits=waits, form=form, name=name, success=f"agent {name} is SUSPENDED"
    )


@command.command(
    "resume", epilog=examples("tenure agent resume hello", "tenure agent resume hello --timeout 30")
)
@click.argument("name")
@QUEUE
@wait_options
@output_option
@with_client
def resume(client: Client, *, name: str, queue: bool, waits: WaitOptions, form: str) -> None:
    """Start a suspended agent again, and wait until it answers."""
    answer = client.send(
        "POST", path("agents", name, verb="resume"), query=_queue(value=queue),
        agent=name,
    )  # fmt: skip
    wait_and_report(
        client, answer, waits=waits, form=form, name=name, success=f"agent {name} is READY"
    )


@command.command("stop", epilog=examples("tenure agent stop hello"))
@click.argument("name")
@wait_options
@output_option
@with_client
def stop(client: Client, *, name: str, waits: WaitOptions, form: str) -> None:
    """Stop an agent in an emergency: revoke its credentials and kill its runtime, without a drain.

    The agent is then suspended; `resume` starts it again.
    """
    answer = client.send("POST", path("agents", name, verb="stop"), agent=name)
    wait_and_report(
        client, answer, waits=waits, form=form, name=name, success=f"agent {name} is stopped"
    )


@command.command(
    "delete",
    epilog=examples(
        "tenure agent delete hello",
        "tenure agent delete hello --drain 0",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@DRAIN
@click.option(
    "--queue", is_flag=True,
    help="If another delete has the agent's lock, wait for it.  Any other operation is cancelled.",
)  # fmt: skip
@click.option(
    "--retention", type=click.Choice(("remove", "retain")), help="Whether its spec is kept."
)
@click.option(
    "--dry-run", is_flag=True, help="Show what would be deleted, as a tree; change nothing."
)
@click.option("--yes", is_flag=True, help="Do not ask before sub-agents are deleted too.")
@wait_options
@output_option
@with_client
def delete(
    client: Client, *, names: tuple[str, ...], drain: float | None, queue: bool,
    retention: str | None, dry_run: bool, yes: bool, waits: WaitOptions, form: str,
) -> None:  # fmt: skip
    """Close agents and delete everything that belongs to them, sub-agents included."""
    from tenure.faces.cli.cascade import agents_below, show_cascade

    query: dict[str, Any] = {**_drain(drain), **_queue(value=queue), "retention": retention}
    if dry_run:
        for name in names:
            show_cascade(client, name, form=form)
        return
    if sys.stdin.isatty() and not yes:  # scripts are not asked
        below = {one for name in names for one in agents_below(client, name)} - set(names)
        if below:
            named = ", ".join(sorted(below)[:NAMED_MAX]) + (", …" if len(below) > NAMED_MAX else "")
            count = f"{len(below)} sub-agents" if len(below) > 1 else "a sub-agent"
            confirm(f"{count} will be deleted too: {named}", yes=yes)
    for number, name in enumerate(names, 1):
        try:
            answer = client.send("DELETE", path("agents", name), query=query, agent=name)
            wait_and_report(
                client, answer, waits=waits, form=form, name=name,
                success=f"agent {name} is deleted, and nothing of it is left",
            )  # fmt: skip
        except CommandExit:
            if names[number:]:
                say(f"not attempted: {', '.join(names[number:])}")
            raise


@command.command("invite", epilog=examples("tenure agent invite hello > invitation"))
@click.argument("name")
@output_option
@with_client
def invite(client: Client, *, name: str, form: str) -> None:
    """Print a one-time token with which an agent registers its keys at /oauth/register."""
    made = client.send(
        "POST", path("agents", name, verb="invite"), agent=name, check_command="tenure audit list"
    )
    if form in TABLES:
        say(f"client {made['client_id']}, valid until {in_utc(made['expires_at'])}")
    show(made, nouns.INVITATION, form=form, text=lambda one: str(one["token"]))


@command.command(
    "invoke",
    epilog=examples(
        'tenure agent invoke hello \'{"prompt": "hi"}\'',
        'echo \'{"prompt": "hi"}\' | tenure agent invoke hello',
        "tenure agent invoke hello @question.json",
    ),
)
@click.argument("name")
@click.argument("body", required=False)
@click.option(
    "--content-type",
    metavar="TYPE",
    help="The content type; the default is JSON if the body is JSON, otherwise text.",
)
@click.option("--session", metavar="ID", help="The session to continue.")
@click.option("--timeout", type=click.FloatRange(min=0), default=900.0, metavar="SECONDS",
              help="How long the agent may send no data.")  # fmt: skip
@with_client
def invoke(
    client: Client, *, name: str, body: str | None, content_type: str | None, session: str | None,
    timeout: float,
) -> None:  # fmt: skip
    """Send BODY to an agent and print its answer while it arrives.

    Without BODY, or with -, standard input is sent; @FILE sends a file.
    """
    from tenure.faces.cli.invoke import invoke as send_invocation

    send_invocation(
        client, name, body=body, content_type=content_type, session=session, seconds=timeout
    )


@command.command(
    "logs", epilog=examples("tenure agent logs hello -n 20", "tenure agent logs hello --follow")
)
@click.argument("name")
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), default=100, show_default=True,
              metavar="N", help="The number of last lines.")  # fmt: skip
@click.option("--follow", is_flag=True,
              help="Follow the output until ctrl-c or the agent's deletion.")  # fmt: skip
@with_client
def logs(client: Client, *, name: str, lines: int, follow: bool) -> None:
    """Print the output of an agent."""
    from tenure.faces.cli.logs import follow as follow_log

    if not follow:
        print_agent_output(client.get(path("agents", name, "logs"), {"lines": lines})["text"])
        return
    try:
        follow_log(client, name, lines=lines)
    except KeyboardInterrupt:
        raise CommandExit(Exit.INTERRUPTED) from None
