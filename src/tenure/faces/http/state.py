"""The state that all faces of one HTTP server share: the plane, counters, limits, the stop flag."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from tenure.app.plane import Plane
from tenure.app.safety.write_probe import WriteProbe
from tenure.app.tenancy import tokens
from tenure.core.errors import CommitUnknown
from tenure.core.roles import Caller
from tenure.faces.http.bounds import Bounds, RateLimiter
from tenure.telemetry.counters import StepTimes

Authenticate = Callable[[str], Awaitable[Caller]]


class HttpState:
    """The state of one HTTP server and its faces."""

    def __init__(
        self, plane: Plane, *, step_times: StepTimes | None = None, bounds: Bounds | None = None
    ) -> None:
        """Serve this plane to callers who have a token of it."""
        self.plane = plane
        self.bounds = Bounds() if bounds is None else bounds
        self.rate_limiter = RateLimiter(self.bounds)
        self.authenticate: Authenticate = partial(tokens.authenticate, plane)
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """The number of responses by method, route and status."""
        self.streams: Counter[str] = Counter()
        """The number of open event streams by tenant."""
        self.step_times = StepTimes() if step_times is None else step_times
        self.write_probe = WriteProbe()
        self.ready = False
        """Whether the plane has started; the process that starts it sets this."""
        self.stopping = asyncio.Event()
        """Set when the process is about to end; waits and streams then end."""
        self.unknown_commit: CommitUnknown | None = None
        """The commit whose outcome is unknown; after it nothing is acknowledged any more."""
        self.document = b"{}"
        """The OpenAPI document."""

    def stop_after_unknown_commit(self, error: CommitUnknown) -> None:
        """Stop the server, so that the next start reads from disk whether the commit is there."""
        self.unknown_commit = self.unknown_commit or error
        self.stopping.set()
