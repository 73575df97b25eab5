"""Sends `GET /ping` to an agent, with bounded time and size, because the answer may be hostile."""

import asyncio
import json
from enum import StrEnum
from typing import NamedTuple

from tenure.adapters.runtime.process.runtime_dir import plain

LINE_BYTES_MAX = 60
"""Length of the quoted part of an invalid answer."""
ANSWER_BYTES_MAX = 16_384
REQUEST = b"GET /ping HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nConnection: close\r\n\r\n"


class Health(StrEnum):
    """The health that an agent reports, or why it reports none."""

    HEALTHY = "Healthy"
    BUSY = "HealthyBusy"
    SILENT = "silent"
    """No process listens on the port."""
    ODD = "odd"
    """A process listens, but did not answer within the time as the contract requires."""


class PingResult(NamedTuple):
    """An agent's health, and the first line of an invalid answer."""

    health: Health
    detail: str = ""


async def ping(port: int, *, seconds: float) -> PingResult:
    """Send one request; never raises, and takes at most `seconds`."""
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
        return PingResult(Health.ODD, f"no complete answer in {seconds:g} s")


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read the answer up to its content length or the size limit."""
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
    """The first line of an answer, shortened."""
    line = (answer.splitlines() or [b""])[0][:LINE_BYTES_MAX]
    return plain(line).strip() or "nothing"


def _length(head: bytes) -> int:
    """The content length; the size limit if the header has none."""
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip() == b"content-length" and value.strip().isdigit():
            return min(int(value.strip()[:9]), ANSWER_BYTES_MAX)
    return ANSWER_BYTES_MAX


def health_of(answer: bytes) -> Health:
    """The health that this answer reports."""
    head, _, body = answer.partition(b"\r\n\r\n")
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest.startswith(b"200"):
        return Health.ODD
    body = body[body.find(b"{") : body.rfind(b"}") + 1]  # whatever the transfer coding
    try:
        detail = json.loads(body)
    except (ValueError, RecursionError):
        return Health.ODD
    status = detail.get("status") if isinstance(detail, dict) else None
    return Health(status) if status in (Health.HEALTHY, Health.BUSY) else Health.ODD
