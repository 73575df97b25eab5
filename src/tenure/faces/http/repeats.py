"""Repeated requests: the handler is called once for each idempotency key, and answers once.

The command of a handler stores the answer in the commit that has its effect.  What it has not
stored (it had nothing to do, or its effect lies in a provider) is stored here, after it.
"""

from typing import Any

from tenure.app.operations.idempotency import RepeatedRequest, StoredAnswer
from tenure.core.errors import CallerError
from tenure.faces.http.table import HttpRequest, Reply, Route, encode


async def call(route: Route, request: HttpRequest) -> Any:  # noqa: ANN401 (as handlers answer)
    """The answer of the route's handler, or the one that is stored for an equal request."""
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
            continue  # its answer is stored by now, unless its day has just ended
        except CallerError:
            # The request that stands in the way may be this one, carried out since we looked.
            stored = await idempotency.find_answer(plane)
            if stored is None:
                raise
            return _reply(stored)
        return value


def _reply(stored: StoredAnswer) -> Reply:
    return Reply(stored.body, stored.status)
