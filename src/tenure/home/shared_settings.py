"""Settings that all processes of a home share: one line of JSON in the file `terms`.

The settings come from the options of `tenure up`.  The process that opens the embedded providers
writes the file, under the lock on the providers; workers read it.  So a worker that takes over the
providers serves them with the options of `tenure up`.  The file is replaced atomically and flushed.
"""

import json
import secrets
from pathlib import Path
from typing import Any, Final, NamedTuple

from tenure.atomic_file import replace_atomically
from tenure.core.errors import Invalid, StoreError
from tenure.core.limits import OUTBOX_TENANT_MAX
from tenure.ports.clock import Clock

NAME = "terms"
FIRST_START_SECONDS = 10.0
"""How long a worker waits for the first `tenure up` of its home."""
PAUSE_SECONDS = 0.1
SHARED_NAMES: Final = (
    "sandbox",
    "webhooks_here",
    "drift",
    "keep_findings_days",
    "keep_operations_days",
    "keep_events_per_tenant",
)
"""Names of the settings that are equal in all processes of a home."""

HOW_TO_NAME: Final = (
    "by --store or TENURE_STORE; a new plane needs a home of its own, by --home or TENURE_HOME"
)
"""The part of an error text that says what to do if home and store are of different planes."""


def shared_values(source: object) -> dict[str, Any]:
    """The shared values of a `Settings` or a `SharedSettings`."""
    return {name: getattr(source, name) for name in SHARED_NAMES}


class SharedSettings(NamedTuple):
    """The content of the file."""

    home: str
    """The random name of the home, which never changes; a shared store has it in its plane row."""
    store: str = ""
    """The address of the store without its password; empty if the store is in the home."""
    issuer: str = ""
    sandbox: str = "auto"
    webhooks_here: bool = False
    drift: str = "repair"
    keep_findings_days: float = 30.0
    keep_operations_days: float = 90.0
    keep_events_per_tenant: int = OUTBOX_TENANT_MAX
    """Retention is done by the leader, which may be any of the processes."""


class SharedSettingsFile:
    """The file of shared settings in one home."""

    def __init__(self, home: Path) -> None:
        self.path = home.absolute() / NAME

    def read(self) -> SharedSettings | None:
        """The stored settings; None if no plane was ever started in this home.

        Names that only a newer release knows are ignored.
        """
        try:
            content = dict(json.loads(self.path.read_bytes()))
            return SharedSettings(
                **{name: content[name] for name in SharedSettings._fields if name in content}
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(
                f"{self.path} cannot be used ({error}): nothing was touched. Put it back as it was;"
                " if it is lost, remove it and start tenure up, with --new-home if you use --store."
            ) from None

    async def wait_for_first_start(self, clock: Clock) -> None:
        """Wait until a plane was started in this home; Invalid after FIRST_START_SECONDS."""
        until = clock.monotonic() + FIRST_START_SECONDS
        while self.read() is None:
            if clock.monotonic() > until:
                raise Invalid(
                    f"no tenure up was started in {self.path.parent} yet, so the settings of its"
                    " workers are not known: name the plane's home, by --home or TENURE_HOME, or"
                    " start tenure up there first. Nothing was created"
                )
            await clock.sleep(PAUSE_SECONDS)

    def refuse_store_here(self) -> None:
        """Raise Invalid if the plane of this home has its store elsewhere."""
        terms = self.read()
        if terms is not None and terms.store:
            raise Invalid(
                f"{self.path.parent} is the home of a plane whose store is {terms.store}: name it,"
                f" {HOW_TO_NAME}. Nothing was touched"
            )

    def update(self, own: SharedSettings | None, issuer: str) -> SharedSettings:
        """Write the settings of the process that opens the providers, and return the result.

        `own` is None for a worker: it keeps the stored settings.  `issuer` is the one that other
        running processes use, if any; it is kept too.  The caller has the lock on the providers.
        """
        stored = self.read()
        base = own or stored
        if base is None:
            raise self._file_removed()
        home = stored.home if stored is not None else secrets.token_hex(16)
        terms = base._replace(home=home, issuer=issuer or base.issuer)
        if terms != stored:
            self.write(terms)
        return terms

    def read_agreed(self, own: SharedSettings | None) -> SharedSettings:
        """The stored settings; Invalid if the options of this process differ from them."""
        terms = self.read()
        if terms is None:
            raise self._file_removed()
        if own is not None and not own.store:
            self.refuse_store_here()
        for option, theirs in shared_values(terms).items():
            mine = getattr(own or terms, option)
            if mine != theirs:
                raise Invalid(
                    f"processes run in {self.path.parent} with {option}={theirs}, and this one has"
                    f" {option}={mine}: use the same value, or stop all of them first. Nothing was"
                    " started"
                )
        return terms

    def _file_removed(self) -> Invalid:
        return Invalid(f"{self.path} was removed meanwhile: start tenure up again")

    def write(self, terms: SharedSettings) -> None:
        """Replace the file; it is on the disk when this returns."""
        replace_atomically(self.path, json.dumps(terms._asdict()) + "\n")
