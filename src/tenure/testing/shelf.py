"""A provider whose resources are files: they survive a kill -9, and `ls` shows them.

Each resource is one file named by its key; the file `KEY.burned` marks a burned key.  A file is
written under a temporary name and renamed, so that a crash leaves it whole or not at all.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from tenure.core.errors import Rejected
from tenure.core.ids import ResourceKey
from tenure.ports.provider import Observation, OwnedResource, Presence, Spec


class Shelf:
    """A provider in a directory of its own; see `tenure.ports.provider.Provider`.

    `slow` is the time between writing the file and answering: a crash can happen in it. A spec
    with `refuse: <name of the shelf>` is refused.
    """

    def __init__(
        self, directory: Path, name: str, *, now: Callable[[], float], slow: float = 0.0
    ) -> None:
        """Open the shelf `name` below this directory; make it if it does not exist."""
        self._place = directory / name
        self._place.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._now = now
        self._slow = slow

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Write the file; a burned key, a foreign file and an older generation are refused."""
        if spec.get("refuse") == self._name:
            self._tombstone(key).touch()  # a refusal is final, also for a call still on its way
            message = f"{self._name} refuses this spec"
            raise Rejected(message)
        if self._tombstone(key).exists():
            message = f"{key.text} was removed before and is never used again"
            raise Rejected(message)
        there = self._read(key.text)
        if there is not None:
            self._refuse_foreign(key, there)
            if int(str(there["generation"])) > key.generation:
                message = f"{key.text} is held by a newer generation"
                raise Rejected(message)
        since = there["since"] if there is not None else self._now()
        row = {"plane": key.plane, "agent": key.agent, "generation": key.generation, "since": since}
        self._write(key.text, {**row, "spec": dict(spec)})
        if self._slow:
            await asyncio.sleep(self._slow)
        return {"file": key.text}

    async def inspect(self, key: ResourceKey) -> Observation:
        """Whether the file exists, and who owns it."""
        there = self._read(key.text)
        if there is None:
            return Observation(Presence.ABSENT)
        owner, generation = str(there["plane"]), int(str(there["generation"]))
        ours = owner == key.plane and there["agent"] == key.agent
        presence = Presence.READY if ours else Presence.FOREIGN
        return Observation(presence, {"file": key.text}, owner, generation)

    async def remove(self, key: ResourceKey) -> None:
        """Burn the key, then delete the file, so that a late ensure is refused."""
        there = self._read(key.text)
        if there is not None:
            self._refuse_foreign(key, there)
        self._tombstone(key).touch()
        (self._place / key.text).unlink(missing_ok=True)

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Every file with this owner."""
        for name in self.list_keys():
            there = self._read(name)
            if there is not None and there["plane"] == plane:
                agent, generation = str(there["agent"]), int(str(there["generation"]))
                yield OwnedResource(name, agent, generation, float(str(there["since"])))

    def list_keys(self) -> list[str]:
        """The keys of all files on this shelf."""
        names = (path.name for path in self._place.iterdir())
        return sorted(name for name in names if not name.endswith((".burned", ".new")))

    def _tombstone(self, key: ResourceKey) -> Path:
        return self._place / f"{key.text}.burned"

    def _refuse_foreign(self, key: ResourceKey, there: Mapping[str, object]) -> None:
        if there["plane"] != key.plane or there["agent"] != key.agent:
            message = f"{key.text} belongs to {there['plane']}/{there['agent']}"
            raise Rejected(message)

    def _read(self, name: str) -> dict[str, object] | None:
        try:
            row: dict[str, object] = json.loads((self._place / name).read_text())
        except FileNotFoundError:
            return None
        return row

    def _write(self, name: str, row: Mapping[str, object]) -> None:
        new = self._place / f"{name}.new"
        new.write_text(json.dumps(row))
        new.replace(self._place / name)
