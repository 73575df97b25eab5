"""Sends one span for each attempt of a step, linked to its operation.

An operation is not run by one process from start to end, so it has no span of its own.  Its trace
id is derived from its id.  So the attempts of all processes, also after a crash, are in one trace.
"""

from hashlib import blake2b

from opentelemetry import trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from tenure.core.endings import PerformedMove, is_error

NANOSECONDS = 1_000_000_000


def context_of(operation: str) -> SpanContext:
    """The parent context of an operation's attempts, derived from its id."""
    digest = blake2b(operation.encode(), digest_size=24).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16], "big"),
        span_id=int.from_bytes(digest[16:], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


class Spans:
    """Sends spans to the process's tracer, if the operator has configured one."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("tenure")

    def __call__(self, move: PerformedMove) -> None:
        """Record one span for the time of the attempt."""
        operation = context_of(move.operation)
        ending = move.ending
        span = self._tracer.start_span(
            f"{move.plan}/{move.step}.{move.act}",
            context=set_span_in_context(NonRecordingSpan(operation)),
            links=[Link(operation)],
            start_time=int(move.started_at * NANOSECONDS),
            attributes={
                "tenure.operation": move.operation,
                "tenure.tenant": move.tenant,
                "tenure.agent": move.agent,
                "tenure.plan": move.plan,
                "tenure.step": move.step,
                "tenure.act": move.act,
                "tenure.attempt": move.attempt,
                "tenure.ending": type(ending).__name__,
            },
        )
        if is_error(ending):
            span.set_status(Status(StatusCode.ERROR, ending.code))
        span.end(end_time=int(move.ended_at * NANOSECONDS))
