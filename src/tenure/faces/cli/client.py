"""The HTTP client of the CLI: one request at a time over http.client, responses as plain data.

A refusal is raised as ServerRefusal, a missing response as Unreachable.  A request is sent again if
the connection breaks: a mutation has an idempotency key, so that it takes effect once.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from tenure.core.retry import CLI_CONNECT
from tenure.faces.cli.exits import CommandExit, ServerRefusal, Unreachable
from tenure.faces.cli.where import ServerAddress, ServerLocation

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

ANSWER_SECONDS = 30.0
"""How long a server may take for a response that does not wait for an operation."""
SLOW_SECONDS = 3.0
"""After so long the user is told that the command waits for a response."""
RETRY_SECONDS = (0.1, 0.4, 1.0, 2.0, 4.0)
"""Pauses before a request is sent again after its connection broke; a server that crashed may be
back by then.
"""
DIAGNOSIS_SECONDS = 10.0
"""The timeout of the request that finds out why a mutation was not answered."""
SERVER_ERROR = 500
DOCTOR = "tenure doctor checks the installation"
PAGE = 1_000
LINE_BYTES_MAX = 16 << 20
Body = bytes | Iterator[bytes] | None
Query = Mapping[str, object]


class Client:
    """The connection of one command to its server."""

    def __init__(self, where: ServerLocation) -> None:
        """Find the server at the first request, and again after each lost connection."""
        self.where = where
        self.timeout = ANSWER_SECONDS
        """How long a response may take, in seconds."""
        self._server: ServerAddress | None = None
        self._connection: HTTPConnection | None = None

    @property
    def server(self) -> ServerAddress:
        """The server and its token."""
        return self._server or self.find()

    def find(self) -> ServerAddress:
        """Find the address of the server; this comes before the HTTP modules are imported."""
        self._server = self.where.server()
        return self._server

    def close(self) -> None:
        """Close the connection; the next request finds the server again, as it may have moved."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._server = None

    # ------------------------------------------------------------------------------------ requests

    def get(self, path: str, query: Query | None = None, *, seconds: float = 0.0) -> Any:  # noqa: ANN401 (plain data)
        """The response to a read; `seconds` is how long the server waits before it answers."""
        return self._request("GET", path + _query(query), seconds=seconds)

    def pages(self, path: str, query: Query | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page."""
        page_query = {"limit": PAGE, **(query or {})}
        while True:
            page = self.get(path, page_query)
            yield from page["items"]
            if page.get("next") is None:
                return
            page_query["after"] = page["next"]

    def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Query | None = None,
        check_command: str = "tenure operation list",
        agent: str = "",
        seconds: float = 0.0,
    ) -> Any:  # noqa: ANN401 (plain data)
        """The response to a mutation.

        `check_command` shows whether it was accepted, if no response comes.
        """
        headers = {"Idempotency-Key": os.urandom(16).hex()}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        return self._request(
            method,
            path + _query(query),
            data,
            headers,
            check_command=check_command,
            agent=agent,
            seconds=seconds,
        )

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: Body = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Iterator["HTTPResponse"]:
        """A response that is read in pieces; `seconds` without data end it.

        The caller checks the status.
        """
        from http.client import HTTPException

        connection = self._connect(seconds)
        try:
            try:
                connection.request(method, path, body, self._headers(headers or {}))
                answer = connection.getresponse()
            except (OSError, HTTPException) as error:
                raise self._broken(error) from None
            yield answer
        finally:
            connection.close()

    def lines(self, answer: "HTTPResponse") -> Iterator[bytes]:
        """The lines of a streamed response; ConnectionBroken if it is cut off."""
        from http.client import HTTPException

        try:
            while line := answer.readline(LINE_BYTES_MAX):
                yield line
        except (OSError, HTTPException) as error:
            raise self._broken(error) from None

    def refusal(self, answer: "HTTPResponse", *, agent: str = "") -> ServerRefusal:
        """The refusal in this response."""
        return _refusal(answer.status, answer.read(), agent)

    # --------------------------------------------------------------------------------------- inner

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        check_command: str = "",
        seconds: float = 0.0,
        agent: str = "",
    ) -> Any:  # noqa: ANN401 (plain data)
        send = partial(self._send_once, method, path, body, headers or {}, seconds)
        try:
            status, data = self._send_with_retries(send, RETRY_SECONDS)
        except ConnectionBroken as error:
            if method == "GET":
                error.advice = error.advice or DOCTOR
            else:
                once = " once the server is back" if error.advice else ""
                error.advice = f"it may have been accepted: {check_command} shows it{once}"
                error.sentence += self._why_unanswered()
            raise
        if status >= 400:  # noqa: PLR2004 (the first error status of HTTP)
            raise _refusal(status, data, agent)
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise Unreachable(
                f"the server at {self.server.address} is not Tenure: {data[:80]!r}",
                advice="give another address: --address URL, or TENURE_ADDRESS",
            ) from None

    def _why_unanswered(self) -> str:
        """Why reads are refused while a mutation is not answered, such as a lost store."""
        usual, self.timeout = self.timeout, DIAGNOSIS_SECONDS
        send = partial(self._send_once, "GET", path("agents") + _query({"limit": 1}), None, {}, 0.0)
        try:
            status, data = self._send_with_retries(send, ())
        except CommandExit:
            return ""
        finally:
            self.timeout = usual
        return f": {_refusal(status, data, '').sentence}" if status >= SERVER_ERROR else ""

    def _send_with_retries(
        self, send: Callable[[], tuple[int, bytes]], pauses: tuple[float, ...]
    ) -> tuple[int, bytes]:
        """The response; the request is sent again after each pause if the connection broke.

        A refused connection is raised at once, unless the server was there a moment ago: then it
        is ConnectionBroken, because the request may have arrived.  A timeout is raised at once too.
        """
        if self._server is None:
            self.find()
        from http.client import HTTPException

        broken_sentence, timed_out = "", False
        for pause in (*pauses, None):
            try:
                return send()
            except Unreachable as error:
                failure = error
            except (OSError, HTTPException) as error:
                failure = self._broken(error)
                timed_out = isinstance(error, TimeoutError)
            if isinstance(failure, ConnectionBroken):
                broken_sentence = failure.sentence
            elif broken_sentence:
                failure = ConnectionBroken(
                    f"{broken_sentence}, and now {failure.sentence}", advice=failure.advice
                )
            if pause is None or timed_out or not broken_sentence:
                raise failure
            time.sleep(pause)
        raise AssertionError  # unreachable: after the last attempt it has returned or raised

    def _send_once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect(self.timeout)
        timeout = self.timeout + seconds
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        with _report_if_slow(self.server.address, seconds, self.timeout):
            self._connection.request(method, path, body, self._headers(headers))
            answer = self._connection.getresponse()
            return answer.status, answer.read()

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.server.token}",
            "User-Agent": "tenure-cli",
            **more,
        }

    def _connect(self, seconds: float) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        server = self.server
        kind = HTTPSConnection if server.scheme == "https" else HTTPConnection
        return kind(server.host, server.port, timeout=seconds)

    def _broken(self, error: Exception) -> Unreachable:
        """The error to show for a broken connection."""
        address = self.server.address
        self.close()
        if isinstance(error, ConnectionRefusedError):
            advice = f"start it: tenure up; {DOCTOR}"
            return Unreachable(f"no server answers at {address}", advice=advice)
        if isinstance(error, TimeoutError):
            return ConnectionBroken(f"the server at {address} did not answer in time")
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ConnectionBroken(f"the connection to {address} broke: {why}")


@contextmanager
def _report_if_slow(address: str, seconds: float, timeout: float) -> Iterator[None]:
    """Print that the command waits for a response, if it is late."""
    from threading import Timer

    def report() -> None:
        from tenure.faces.cli.output import say

        say(f"waiting for a response from {address}; {timeout:.0f} s at most")

    timer = Timer(seconds + SLOW_SECONDS, report)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ConnectionBroken(Unreachable):
    """The connection broke, so that it is unknown whether the request arrived."""


def _refusal(status: int, data: bytes, agent: str) -> ServerRefusal:
    try:
        problem = json.loads(data)
    except ValueError:
        problem = {}
    return ServerRefusal(status, problem if isinstance(problem, dict) else {}, agent=agent)


def _query(query: Query | None) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        several = value if isinstance(value, list | tuple) else [value]
        for one in several:
            if isinstance(one, bool):
                pairs.append((name, "true" if one else "false"))
            elif one is not None:
                pairs.append((name, str(one)))
    return f"?{urlencode(pairs)}" if pairs else ""


def path(*parts: str, verb: str = "") -> str:
    """The path of an object: `path("agents", "a", verb="suspend")` is `/v1/agents/a:suspend`."""
    whole = "/".join(quote(part, safe="") for part in parts)
    return f"/v1/{whole}:{verb}" if verb else f"/v1/{whole}"


def retry_until(send: Callable[[], Any], *, until: float) -> Any:  # noqa: ANN401 (plain data)
    """The result of `send`, which is repeated until this monotonic time while no server answers."""
    for pause in CLI_CONNECT.delays():
        try:
            return send()
        except Unreachable:
            if time.monotonic() + pause >= until:
                raise
        time.sleep(pause)
    raise AssertionError  # the delays have no end
