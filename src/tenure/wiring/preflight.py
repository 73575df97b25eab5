"""Checks that run before a start creates or changes anything."""

from pathlib import Path

from tenure.app.start_checks import refuse_another_home
from tenure.core.errors import Invalid
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import HOW_TO_NAME, SharedSettingsFile
from tenure.ports.plane_rows import HOME_ROW
from tenure.settings import Settings
from tenure.sqlite import location
from tenure.upkeep.homes import STORE
from tenure.wiring.engine import probe_engine
from tenure.wiring.store import is_shared, names_in_store, store_without_password


async def run_preflight(settings: Settings) -> None:
    """Refuse a home, store or engine that cannot be used, or that do not belong together.

    A paused plane starts without its engine, so the engine is not probed then.
    """
    home = Path(settings.home)
    if is_shared(settings):
        await _refuse_unrelated(settings, home)
    else:
        SharedSettingsFile(home).refuse_store_here()
    memo = EpochFile(home).read()
    if memo is None or not memo.pause_reason:
        await probe_engine(settings)


async def _refuse_unrelated(settings: Settings, home: Path) -> None:
    """Refuse a store of another plane; this home's agents would be unmanaged otherwise."""
    store_home = (await names_in_store(settings)).get(HOME_ROW[0], "")
    stored = SharedSettingsFile(home).read()
    own_home, known_store = (stored.home, stored.store) if stored is not None else ("", "")
    if store_home and store_home == own_home:
        return
    if not settings.new_home:
        refuse_another_home(own_home, store_home)
    address = store_without_password(settings)
    if known_store and known_store != address and not store_home:
        raise Invalid(
            f"{home} is the home of a plane whose store is {known_store}, and {address} has no"
            f" record of it: name the right one, {HOW_TO_NAME}. Nothing was touched"
        )
    if not known_store and _has_records(home / STORE):
        raise Invalid(
            f"the records of this home's plane are in {home / STORE}, and {address} has none of"
            " them: tenure migrate-store --to URL moves them there; leave --store and TENURE_STORE"
            " out to use the file; a new plane needs a home of its own, by --home or TENURE_HOME."
            " Nothing was touched"
        )


def _has_records(file: Path) -> bool:
    """Whether the file is a store whose records were not moved elsewhere."""
    header = location.read_header(file) if file.is_file() else None
    return header is not None and header.application_id != location.MOVED_APPLICATION_ID
