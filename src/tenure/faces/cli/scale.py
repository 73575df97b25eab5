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
    (
        "--store",
        "store",
        "URL",
        "TENURE_STORE",
        "The store, as postgresql://…; without it the store is a file in the home.",
    ),
    (
        "--bus",
        "bus",
        "URL",
        "TENURE_BUS",
        "A NATS server, as nats://…; every event is also published there.",
    ),
    ("--engine", "engine", None, "TENURE_ENGINE", "The engine that performs operations."),
    (
        "--temporal",
        "temporal_address",
        "HOST:PORT",
        "TENURE_TEMPORAL",
        "The address of Temporal's frontend.",
    ),
    (
        "--temporal-namespace",
        "temporal_namespace",
        "NAME",
        "TENURE_TEMPORAL_NAMESPACE",
        "The namespace in Temporal.",
    ),
    (
        "--temporal-queue",
        "temporal_queue",
        "NAME",
        "TENURE_TEMPORAL_QUEUE",
        "The task queue of this plane's workers; by default the one that its store names.",
    ),
    (
        "--temporal-tls-ca",
        "temporal_tls_ca",
        "FILE",
        "TENURE_TEMPORAL_TLS_CA",
        "The authority that signed Temporal's certificate, as PEM.",
    ),
    (
        "--temporal-tls-cert",
        "temporal_tls_certificate",
        "FILE",
        "TENURE_TEMPORAL_TLS_CERT",
        "The client certificate for Temporal, as PEM.",
    ),
    (
        "--temporal-tls-key",
        "temporal_tls_key",
        "FILE",
        "TENURE_TEMPORAL_TLS_KEY",
        "The key of the client certificate, as PEM.",
    ),
    (
        "--stopped-seconds",
        "stopped_seconds",
        "SECONDS",
        "TENURE_STOPPED_SECONDS",
        "Kill a provider host that was suspended (SIGSTOP) for so long; default 10, 0 is never.",
    ),
)
"""Each option: its flag, field of the settings, metavariable, environment variable and help."""
_RETENTION_OPTIONS = (
    (
        "--keep-operations",
        "keep_operations_days",
        "DAYS",
        "TENURE_KEEP_OPERATIONS",
        "Keep ended operations for so many days; default 90, 0 is for ever.",
    ),
    (
        "--keep-findings",
        "keep_findings_days",
        "DAYS",
        "TENURE_KEEP_FINDINGS",
        "Keep resolved findings for so many days; default 30, 0 is for ever.",
    ),
    (
        "--keep-events",
        "keep_events_per_tenant",
        "EVENTS",
        "TENURE_KEEP_EVENTS",
        "Keep at most so many events of each tenant, delivered or not; default 500,000.",
    ),
    (
        "--drift",
        "drift",
        None,
        "TENURE_DRIFT",
        "Repair differences between records and providers, or only report them; default repair.",
    ),
)
"""The same for settings that all processes of a home share."""
_KINDS: Mapping[str, Any] = {
    "--engine": click.Choice(("embedded", "temporal")),
    "--drift": click.Choice(("repair", "report")),
    "DAYS": click.FloatRange(min=0.0),
    "EVENTS": click.IntRange(min=1_000, max=OUTBOX_MAX),
    "SECONDS": click.FloatRange(min=0.0),
}
"""The type of an option, or of all with a metavariable, if it is not plain text."""


def up_scale_options(command: Command) -> Command:
    """Add the options that only `up` has as well."""
    return scale_options(command, (*_OPTIONS, *_RETENTION_OPTIONS))


def scale_options(command: Command, options: Sequence[Option] = _OPTIONS) -> Command:
    """Add the options; the command gets the values that the user gave as `scale`."""

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

    for option, field, hint, variable, help_text in reversed(options):
        run = click.option(
            option,
            field,
            metavar=hint,
            type=_KINDS.get(hint or option),
            envvar=variable,
            help=f"{help_text}  [{variable}]",
        )(run)
    return run
