"""Asks an agent how it is: `GET /ping` by hand, with bounds, since what answers may be hostile."""

import asyncio
import json
from enum import StrEnum
from typing import NamedTuple

from tenure.adapters.runtime.process.runtime_dir import plain

LINE_BYTES_MAX = 60
"""What is told of an odd answer."""
ANSWER_BYTES_MAX = 16_384
REQUEST = b"GET /ping HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nConnection: close\r\n\r\n"


class Health(StrEnum):
    """What an agent says of itself, and what it is when it says nothing of use."""

    HEALTHY = "Healthy"
    BUSY = "HealthyBusy"
    SILENT = "silent"
    """Nobody listens on the port."""
    ODD = "odd"
    """Somebody does, and did not answer as the contract asks within the time."""


class PingResult(NamedTuple):
    """How an agent is, and of one that is odd, how it answers."""

    health: Health
    said: str = ""


async def ping(port: int, *, seconds: float) -> PingResult:
    """Ask once; never raises, and never takes longer."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, limit=ANSWER_BYTES_MAX
            )
            try:
                writer.write(REQUEST % f"127.0.0.1:{port}".encode())
                answer = await _read(reader)
                return PingResult(health_of(answer), _first_line(answer))
            finally:
                writer.transport.abort()
    except ConnectionRefusedError:
        return PingResult(Health.SILENT)
    except (OSError, TimeoutError):
        return PingResult(Health.ODD, f"nothing whole in {seconds:g} s")


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The answer, as far as its own words and our bound say."""
    answer = b""
    while len(answer) < ANSWER_BYTES_MAX:
        head, blank, body = answer.partition(b"\r\n\r\n")
        if blank and len(body) >= _length(head):
            break
        data = await reader.read(ANSWER_BYTES_MAX - len(answer))
        if not data:
            break
        answer += data
    return answer


def _first_line(answer: bytes) -> str:
    """How an answer begins, as a sentence can bear it."""
    line = (answer.splitlines() or [b""])[0][:LINE_BYTES_MAX]
    return plain(line).strip() or "nothing"


def _length(head: bytes) -> int:
    """How long the body is; without a word about it, until the end."""
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return min(int(value.strip()[:9]), ANSWER_BYTES_MAX)
    return ANSWER_BYTES_MAX


def health_of(answer: bytes) -> Health:
    """What the agent says of itself in this answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest.startswith(b"200"):
        return Health.ODD
    body = body[body.find(b"{") : body.rfind(b"}") + 1]  # whatever the transfer coding
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return Health.ODD
    status = said.get("status") if isinstance(said, dict) else None
    return Health(status) if status in (Health.HEALTHY, Health.BUSY) else Health.ODD
