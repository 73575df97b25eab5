"""Spans: one for each attempt of a step, linked to its operation.

An operation has no code that runs from its start to its end, so it has no span of its own to be a
parent: its trace id is derived from its id, and every attempt, in whatever process and after
whatever crash, stands in that one trace.
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
    """Where the attempts of an operation hang: the same for everyone who knows its id."""
    digest = blake2b(operation.encode(), digest_size=24).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16], "big"),
        span_id=int.from_bytes(digest[16:], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


class Spans:
    """Tells the process's tracer, as the operator has set it up; without a set-up nothing."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("tenure")

    def __call__(self, performed: PerformedMove) -> None:
        """One span, from when the attempt began to when it ended."""
        operation = context_of(performed.operation)
        ending = performed.ending
        span = self._tracer.start_span(
            f"{performed.plan}/{performed.step}.{performed.act}",
            context=set_span_in_context(NonRecordingSpan(operation)),
            links=[Link(operation)],
            start_time=int(performed.started_at * NANOSECONDS),
            attributes={
                "tenure.operation": performed.operation,
                "tenure.tenant": performed.tenant,
                "tenure.agent": performed.agent,
                "tenure.plan": performed.plan,
                "tenure.step": performed.step,
                "tenure.act": performed.act,
                "tenure.attempt": performed.attempt,
                "tenure.ending": type(ending).__name__,
            },
        )
        if is_error(ending):
            span.set_status(Status(StatusCode.ERROR, ending.code))
        span.end(end_time=int(performed.ended_at * NANOSECONDS))
