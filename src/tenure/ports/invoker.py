"""The invoker: passes an HTTP request to an agent's runtime, and the response back to the caller.

An adapter passes only the headers named here, in both directions.  So a caller's Authorization
never reaches a runtime, and a runtime cannot set a cookie for our origin.  Before it sends anything
on a new connection, it checks that the agent's own runtime listens there.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol

Headers = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values."""
ListenerCheck = Callable[[], Awaitable[bool]]
"""Whether the agent's own runtime, and no other program, listens at its address now."""

SESSION_HEADER: Final = b"x-amzn-bedrock-agentcore-runtime-session-id"
CUSTOM_HEADER_PREFIX: Final = b"x-amzn-bedrock-agentcore-runtime-custom-"
REQUEST_HEADERS: Final = frozenset({
    b"accept", b"accept-encoding", b"accept-language", b"baggage", b"content-encoding",
    b"content-language", b"content-length", b"content-type", b"last-event-id",
    b"mcp-protocol-version", b"mcp-session-id", b"traceparent", b"tracestate", SESSION_HEADER,
})  # fmt: skip
"""Headers of a request that are passed to a runtime, besides those with the custom prefix."""
RESPONSE_HEADERS: Final = frozenset({
    b"cache-control", b"content-disposition", b"content-encoding", b"content-language",
    b"content-length", b"content-type", b"mcp-protocol-version", b"mcp-session-id",
    b"retry-after", SESSION_HEADER,
})  # fmt: skip
"""Headers of a response that are passed to the caller."""


class Exchange(Protocol):
    """One request and its response, as the face that serves the caller sees them.

    The request may still be arriving while the response is written.
    """

    @property
    def headers(self) -> Headers:
        """Every header of the request."""
        ...

    @property
    def has_started(self) -> bool:
        """Whether the response has been started: after that no other response can be sent."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body of the request, piece by piece, as it arrives."""
        ...

    async def watch_caller(self) -> None:
        """Read the request; return when the caller has gone or the request is too large."""
        ...

    def start(self, status: int, headers: Headers) -> Awaitable[None]:
        """Start the response."""
        ...

    def send(self, piece: bytes) -> Awaitable[None]:
        """Send a piece of the response's body."""
        ...

    def end(self) -> Awaitable[None]:
        """End the response; it is complete."""
        ...


class Invoker(Protocol):
    """Calls runtimes.  Every promise here is a test in `tenure.testing.contracts.invoker`."""

    async def load(self) -> None:
        """Import the HTTP client now, so that the first invocation does not wait for it."""
        ...

    async def invoke(
        self, address: str, exchange: Exchange, *, runtime_listens: ListenerCheck
    ) -> None:
        """Pass the request to the runtime at `address` (`host:port`), and its response back.

        RuntimeBroken: the runtime did not answer, or broke off; a response that has started stays
        incomplete.  Unavailable: nothing was sent, because it is not known who listens there.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
