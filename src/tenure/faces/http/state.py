"""What all faces of one HTTP server share: the plane, counters, limits, whether it is stopping."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from tenure.app.plane import Plane
from tenure.app.safety.write_probe import WriteProbe
from tenure.app.tenancy import tokens
from tenure.core.errors import CommitUnknown
from tenure.core.roles import Caller
from tenure.faces.http.bounds import Allowances, Bounds
from tenure.telemetry.counters import StepTimes

Authenticate = Callable[[str], Awaitable[Caller]]


class HttpState:
    """The state of one HTTP server and its faces."""

    def __init__(
        self, plane: Plane, *, step_times: StepTimes | None = None, bounds: Bounds | None = None
    ) -> None:
        """Serve this plane to whoever has a token of it."""
        self.plane = plane
        self.bounds = Bounds() if bounds is None else bounds
        self.allowances = Allowances(self.bounds)
        self.authenticate: Authenticate = partial(tokens.authenticate, plane)
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """Answers by method, route and status."""
        self.streams: Counter[str] = Counter()
        """Streams of events that are open, by tenant."""
        self.step_times = StepTimes() if step_times is None else step_times
        self.write_probe = WriteProbe()
        self.ready = False
        """Whether the plane has started; told by whoever starts it."""
        self.stopping = asyncio.Event()
        """Set when the process is about to end: whoever waits in here comes to an end."""
        self.lost: CommitUnknown | None = None
        """The commit whose outcome nobody knows; from then on nothing is acknowledged."""
        self.document = b"{}"
        """The OpenAPI document."""

    def lose(self, error: CommitUnknown) -> None:
        """Nobody knows what is on disk: stop, so that the next start reads it."""
        self.lost = self.lost or error
        self.stopping.set()
