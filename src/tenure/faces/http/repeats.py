"""Answers a repeated request from its stored answer: a handler runs once for an idempotency key.

The command of a handler stores the answer in the commit that has its effect.  If it did not,
because nothing changed or because the effect is at a provider, the answer is stored here, after the
handler.
"""

from typing import Any

from tenure.app.operations.idempotency import RepeatedRequest, StoredAnswer
from tenure.core.errors import CallerError
from tenure.faces.http.route_table import HttpRequest, Reply, Route, encode


async def call(route: Route, request: HttpRequest) -> Any:  # noqa: ANN401 (as handlers return)
    """Call the route's handler, or return the answer that is stored for an equal request."""
    idempotency, plane = request.idempotency, request.plane
    if not idempotency.has_key:
        return await route.handler(request)
    while True:
        stored = await idempotency.find_answer(plane)
        if stored is not None:
            return _reply(stored)
        try:
            value = await route.handler(request)
            reply = value if isinstance(value, Reply) else Reply(value)
            await idempotency.finish(plane, encode(reply.value), status=reply.status)
        except RepeatedRequest:
            # An equal request committed first.  The next round returns its stored answer, or calls
            # the handler again if that answer has expired in the meantime.
            continue
        except CallerError:
            # The conflict may be with this same request, completed since `find_answer`.
            stored = await idempotency.find_answer(plane)
            if stored is None:
                raise
            return _reply(stored)
        return value


def _reply(answer: StoredAnswer) -> Reply:
    return Reply(answer.body, answer.status)
