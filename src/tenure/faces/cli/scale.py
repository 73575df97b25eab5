"""What `up` and `worker` are told alike, as of a plane that has outgrown one process.

How things are looked after only `up` is told: whoever leads goes by it, and that may be a worker.

Every option can be said by the environment too, as units and containers do; what is secret only so.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from tenure.core.limits import OUTBOX_MAX
from tenure.faces.cli.exits import Ended, Exit

Command = Callable[..., Any]
Option = tuple[str, str, str | None, str, str]
Scale = Mapping[str, Any]
"""Fields of `tenure.settings.Settings`."""

SCHEMES = ("postgresql://", "postgres://")
API_KEY = "TENURE_TEMPORAL_API_KEY"

_OPTIONS = (
    ("--store", "store", "URL", "TENURE_STORE",
     "Where operations are kept: postgresql://…; without it a file in the home."),
    ("--bus", "bus", "URL", "TENURE_BUS",
     "A NATS server to which every event is published too: nats://…"),
    ("--engine", "engine", None, "TENURE_ENGINE", "What moves operations."),
    ("--temporal", "temporal_address", "HOST:PORT", "TENURE_TEMPORAL", "Temporal's frontend."),
    ("--temporal-namespace", "temporal_namespace", "NAME", "TENURE_TEMPORAL_NAMESPACE",
     "Its namespace."),
    ("--temporal-queue", "temporal_queue", "NAME", "TENURE_TEMPORAL_QUEUE",
     "The task queue that workers of this plane share, instead of the one its store names."),
    ("--temporal-tls-ca", "temporal_tls_ca", "FILE", "TENURE_TEMPORAL_TLS_CA",
     "Who signs Temporal's certificate, as PEM."),
    ("--temporal-tls-cert", "temporal_tls_certificate", "FILE", "TENURE_TEMPORAL_TLS_CERT",
     "Our certificate for Temporal, as PEM."),
    ("--temporal-tls-key", "temporal_tls_key", "FILE", "TENURE_TEMPORAL_TLS_KEY",
     "Its key, as PEM."),
    ("--stopped-seconds", "stopped_seconds", "SECONDS", "TENURE_STOPPED_SECONDS",
     "How long who serves the home may stand stopped until it is killed: 10; 0: for ever."),
)  # fmt: skip
"""Each option, the field of the settings that it says, its metavariable, variable and help."""
_WAYS = (
    ("--keep-operations", "keep_operations_days", "DAYS", "TENURE_KEEP_OPERATIONS",
     "How long operations that have ended are kept: 90; 0: for ever."),
    ("--keep-findings", "keep_findings_days", "DAYS", "TENURE_KEEP_FINDINGS",
     "How long findings that are resolved are kept: 30; 0: for ever."),
    ("--keep-events", "keep_events_per_tenant", "EVENTS", "TENURE_KEEP_EVENTS",
     "How many events of each tenant are kept at most, delivered or not: 500,000."),
    ("--drift", "drift", None, "TENURE_DRIFT",
     "What is done where reality differs from the records: repair."),
)  # fmt: skip
"""The same of what holds for all processes of a home."""
_KINDS: Mapping[str, Any] = {
    "--engine": click.Choice(("embedded", "temporal")),
    "--drift": click.Choice(("repair", "report")),
    "DAYS": click.FloatRange(min=0.0),
    "EVENTS": click.IntRange(min=1_000, max=OUTBOX_MAX),
    "SECONDS": click.FloatRange(min=0.0),
}  # fmt: skip
"""What is said of an option, or of those with a metavariable, if it is not any text."""


def ruled(command: Command) -> Command:
    """Add the options that only `up` has as well."""
    return scaled(command, (*_OPTIONS, *_WAYS))


def scaled(command: Command, options: Sequence[Option] = _OPTIONS) -> Command:
    """Add the options; the command gets what was said as `scale`, and nothing of what was not."""

    @wraps(command)
    def run(*given: object, **named: object) -> object:
        said = {field: named.pop(field) for _, field, *_ in options}
        scale = {field: value for field, value in said.items() if value is not None}
        if "store" in scale and not str(scale["store"]).startswith(SCHEMES):
            raise Ended(
                Exit.USAGE,
                "--store is the address of a PostgreSQL: postgresql://user@host/database",
                advice="a store that is a file is in the home: --home DIR",
            )
        if key := os.environ.get(API_KEY):
            scale["temporal_api_key"] = key
        return command(*given, scale=scale, **named)

    for option, field, hint, variable, words in reversed(options):
        run = click.option(
            option, field, metavar=hint, type=_KINDS.get(hint or option), envvar=variable,
            help=f"{words}  [{variable}]",
        )(run)  # fmt: skip
    return run
