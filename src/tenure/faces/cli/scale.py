"""Options that `up` and `worker` share, for planes of more than one process.

Only `up` has the options for retention and drift: they apply to whichever process leads.

Every option can be given by the environment too.  A secret can be given only there.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from tenure.core.limits import OUTBOX_MAX
from tenure.faces.cli.exits import CommandExit, Exit

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
"""Each option: its flag, field of the settings, metavariable, environment variable and help."""
_RETENTION_OPTIONS = (
    ("--keep-operations", "keep_operations_days", "DAYS", "TENURE_KEEP_OPERATIONS",
     "How long operations that have ended are kept: 90; 0: for ever."),
    ("--keep-findings", "keep_findings_days", "DAYS", "TENURE_KEEP_FINDINGS",
     "How long findings that are resolved are kept: 30; 0: for ever."),
    ("--keep-events", "keep_events_per_tenant", "EVENTS", "TENURE_KEEP_EVENTS",
     "How many events of each tenant are kept at most, delivered or not: 500,000."),
    ("--drift", "drift", None, "TENURE_DRIFT",
     "What is done where reality differs from the records: repair."),
)  # fmt: skip
"""The same for settings that all processes of a home share."""
_KINDS: Mapping[str, Any] = {
    "--engine": click.Choice(("embedded", "temporal")),
    "--drift": click.Choice(("repair", "report")),
    "DAYS": click.FloatRange(min=0.0),
    "EVENTS": click.IntRange(min=1_000, max=OUTBOX_MAX),
    "SECONDS": click.FloatRange(min=0.0),
}  # fmt: skip
"""The type of an option, or of all with a metavariable, if it is not plain text."""


def up_scale_options(command: Command) -> Command:
    """Add the options that only `up` has as well."""
    return scale_options(command, (*_OPTIONS, *_RETENTION_OPTIONS))


def scale_options(command: Command, options: Sequence[Option] = _OPTIONS) -> Command:
    """Add the options; the command gets those that were given as `scale`."""

    @wraps(command)
    def run(*args: object, **named: object) -> object:
        values = {field: named.pop(field) for _, field, *_ in options}
        scale = {field: value for field, value in values.items() if value is not None}
        if "store" in scale and not str(scale["store"]).startswith(SCHEMES):
            raise CommandExit(
                Exit.USAGE,
                "--store is the address of a PostgreSQL: postgresql://user@host/database",
                advice="a store that is a file is in the home: --home DIR",
            )
        if key := os.environ.get(API_KEY):
            scale["temporal_api_key"] = key
        return command(*args, scale=scale, **named)

    for option, field, hint, variable, words in reversed(options):
        run = click.option(
            option, field, metavar=hint, type=_KINDS.get(hint or option), envvar=variable,
            help=f"{words}  [{variable}]",
        )(run)  # fmt: skip
    return run
