"""What holds for every process of a home: one line of JSON, replaced whole, flushed, and private.

`tenure up` says it and whoever opens the embedded providers writes it, having the lock on them; a
worker reads it.  So a worker that comes to serve them does it as `up` was told to.
"""

import json
import secrets
from pathlib import Path
from typing import Any, Final, NamedTuple

from tenure.core.errors import Invalid, StoreError
from tenure.core.limits import OUTBOX_TENANT_MAX
from tenure.home.atomic_file import replace_whole
from tenure.ports.clock import Clock

NAME = "terms"
BEGUN_SECONDS = 10.0
"""How long a process that joins waits for the one that begins the home."""
PAUSE_SECONDS = 0.1
AGREED: Final = (
    "sandbox",
    "webhooks_here",
    "drift",
    "keep_findings_days",
    "keep_operations_days",
    "keep_events_per_tenant",
)
"""What every process of a home does alike: terms, and settings under the same names."""

NAMED: Final = (
    "by --store or TENURE_STORE; a new plane needs a home of its own, by --home or TENURE_HOME"
)
"""What to do about a home and a store that are not of one plane."""


def agreed_of(said: object) -> dict[str, Any]:
    """What these settings, or these terms, say of it."""
    return {name: getattr(said, name) for name in AGREED}


class Terms(NamedTuple):
    """What they share."""

    home: str
    """The home's own name, given once: a store that several processes share knows it."""
    store: str = ""
    """Where the plane's records are, without a password; empty: in the home."""
    issuer: str = ""
    sandbox: str = "auto"
    webhooks_here: bool = False
    drift: str = "repair"
    keep_findings_days: float = 30.0
    keep_operations_days: float = 90.0
    keep_events_per_tenant: int = OUTBOX_TENANT_MAX
    """Whoever leads repairs, or forgets what is over; it may be any of them."""


class TermsFile:
    """The terms of one home."""

    def __init__(self, home: Path) -> None:
        self.path = home.absolute() / NAME

    def read(self) -> Terms | None:
        """What was last written; None if no plane was ever started here.

        A newer release may have written more, which only its own processes heed.
        """
        try:
            said = dict(json.loads(self.path.read_bytes()))
            return Terms(**{name: said[name] for name in Terms._fields if name in said})
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(
                f"{self.path} cannot be used ({error}): nothing was touched. Put it back as it was;"
                " if it is lost, remove it and start tenure up, with --new-home if --store is said."
            ) from None

    async def begun(self, clock: Clock) -> None:
        """Return once a plane was started here; Invalid if none was for a while."""
        until = clock.monotonic() + BEGUN_SECONDS
        while self.read() is None:
            if clock.monotonic() > until:
                raise Invalid(
                    f"no tenure up was started in {self.path.parent} yet, so what its workers are"
                    " to do is not known: name the plane's home, by --home or TENURE_HOME, or start"
                    " tenure up there first. Nothing was made"
                )
            await clock.sleep(PAUSE_SECONDS)

    def refuse_store_here(self) -> None:
        """Invalid if the plane of this home keeps its records elsewhere: it has no file here."""
        terms = self.read()
        if terms is not None and terms.store:
            raise Invalid(
                f"{self.path.parent} is the home of a plane whose store is {terms.store}: name it,"
                f" {NAMED}. Nothing was touched"
            )

    def opened(self, told: Terms | None, issuer: str) -> Terms:
        """What holds from now on, by the word of who opens the providers and has their lock.

        None is the word of one that joins: it keeps what holds.  So is the issuer kept that other
        processes have, if any do.
        """
        kept = self.read()
        said = told or kept
        if said is None:
            raise self._gone()
        home = kept.home if kept is not None else secrets.token_hex(16)
        terms = said._replace(home=home, issuer=issuer or said.issuer)
        if terms != kept:
            self.write(terms)
        return terms

    def agreed(self, told: Terms | None) -> Terms:
        """What holds; Invalid if this process was told otherwise and others run by it."""
        terms = self.read()
        if terms is None:
            raise self._gone()
        if told is not None and not told.store:
            self.refuse_store_here()
        for option, theirs in agreed_of(terms).items():
            mine = getattr(told or terms, option)
            if mine != theirs:
                raise Invalid(
                    f"processes run in {self.path.parent} with {option}={theirs}, and this one was"
                    f" told {option}={mine}: say the same, or stop all of them first. Nothing was"
                    " started"
                )
        return terms

    def _gone(self) -> Invalid:
        return Invalid(f"{self.path} was removed meanwhile: start tenure up again")

    def write(self, terms: Terms) -> None:
        """It is on disk when this returns."""
        replace_whole(self.path, json.dumps(terms._asdict()) + "\n")
