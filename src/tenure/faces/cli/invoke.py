"""Invokes an agent from the command line and prints its answer while it arrives."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import CommandExit, Exit, Unreachable

if TYPE_CHECKING:
    from http.client import HTTPResponse

PIECE = 65_536
SESSION = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
REFUSED_STATUS = 400
"""The lowest status of a failure."""


def invoke(
    client: Client,
    name: str,
    *,
    body: str | None,
    content_type: str | None,
    session: str | None,
    seconds: float,
) -> None:
    """Send a body to an agent and write its answer to standard output."""
    from http.client import HTTPException

    data = _bytes(body)
    headers = {"Content-Type": content_type or _content_type(data), "Accept": "*/*"}
    if session:
        headers[SESSION] = session
    where = path("agents", name, "invocations")
    with client.stream("POST", where, body=data, headers=headers, seconds=seconds) as answer:
        kind = answer.getheader("Content-Type") or ""
        if kind.startswith("application/problem+json"):
            raise client.refusal(answer, agent=name)
        try:
            last = _pass_on(answer)
        except TimeoutError:
            raise CommandExit(
                Exit.TIMED_OUT,
                f"the agent sent nothing for {seconds:g} s; it may still be working",
                advice=f"tenure agent logs {name}; --timeout SECONDS waits longer",
            ) from None
        except (HTTPException, ConnectionError) as error:
            raise Unreachable(
                f"the agent's answer broke off: {type(error).__name__}",
                advice=f"tenure agent logs {name}",
            ) from None
        if last not in {b"", b"\n"} and sys.stdout.isatty():
            click.echo()
        if answer.status >= REFUSED_STATUS:
            raise CommandExit(
                Exit.FAILED,
                f"the agent answered with status {answer.status}",
                advice=f"tenure agent logs {name}",
            )


def _pass_on(answer: "HTTPResponse") -> bytes:
    """Write every piece when it arrives; return the last byte."""
    last = b""
    while piece := answer.read1(PIECE):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        last = piece[-1:]
    if answer.length:
        from http.client import IncompleteRead

        raise IncompleteRead(b"", answer.length)
    return last


def _bytes(body: str | None) -> bytes:
    if body is not None and body.startswith("@"):
        try:
            return Path(body[1:]).read_bytes()
        except OSError as error:
            raise click.BadParameter(
                f"{body[1:]} cannot be read: {error.strerror}", param_hint="BODY"
            ) from None
    if body is not None and body != "-":
        return body.encode()
    if body is None and sys.stdin.isatty():
        raise click.UsageError("give a BODY, or something on standard input")
    return sys.stdin.buffer.read()


def _content_type(data: bytes) -> str:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        try:
            data.decode()
        except UnicodeDecodeError:
            return "application/octet-stream"
        return "text/plain; charset=utf-8"
    return "application/json"
