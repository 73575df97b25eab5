"""What is found out before a start makes or changes anything."""

from pathlib import Path

from tenure.app.plane import HOME_ROW, refuse_another_home
from tenure.core.errors import Invalid
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import NAMED, TermsFile
from tenure.settings import Settings
from tenure.sqlite import location
from tenure.upkeep.homes import STORE
from tenure.wiring.engine import probe_engine
from tenure.wiring.store import is_shared, names_in_store, shown_store


async def refuse_unfit(settings: Settings) -> None:
    """Refuse a home, a store or an engine that a start could not go on with, or not together.

    A plane that is held starts without its engine, so that is not looked at then.
    """
    home = Path(settings.home)
    if is_shared(settings):
        await _refuse_unrelated(settings, home)
    else:
        TermsFile(home).refuse_store_here()
    memo = EpochFile(home).read()
    if memo is None or not memo.held:
        await probe_engine(settings)


async def _refuse_unrelated(settings: Settings, home: Path) -> None:
    """Refuse a store of another plane than this home's: its agents would be left behind, unseen."""
    theirs = (await names_in_store(settings)).get(HOME_ROW[0], "")
    terms = TermsFile(home).read()
    mine, elsewhere = (terms.home, terms.store) if terms is not None else ("", "")
    if theirs and theirs == mine:
        return
    if not settings.new_home:
        refuse_another_home(mine, theirs)
    shown = shown_store(settings)
    if elsewhere and elsewhere != shown and not theirs:
        raise Invalid(
            f"{home} is the home of a plane whose store is {elsewhere}, and {shown} knows nothing"
            f" of it: name the right one, {NAMED}. Nothing was touched"
        )
    if not elsewhere and _has_records(home / STORE):
        raise Invalid(
            f"the records of this home's plane are in {home / STORE}, and {shown} has none of them:"
            " tenure migrate-store --to URL moves them there; leave --store and TENURE_STORE out to"
            " go on without; a new plane needs a home of its own, by --home or TENURE_HOME. Nothing"
            " was touched"
        )


def _has_records(file: Path) -> bool:
    """Whether this is a plane's store that was not moved."""
    header = location.read_header(file) if file.is_file() else None
    return header is not None and header.application_id != location.MOVED
