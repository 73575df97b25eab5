"""Providers that keep their resources in memory."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tenure.core.errors import Invalid, Rejected
from tenure.core.ids import ResourceKey
from tenure.ports.identity import Invitation, OAuthError, OAuthRefusal
from tenure.ports.provider import Observation, OwnedResource, Presence, Spec
from tenure.ports.runtime import MISSING, LogPart, Status


class Memory:
    """One provider: the four verbs, and the calls of the lifecycle to identity and credentials.

    A spec that names the provider under `refuse` is refused.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.things: dict[str, ResourceKey] = {}
        self.burned: set[str] = set()
        self.closed: dict[str, bool] = {}
        self.rotations = 0
        self.invitations: list[str] = []

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        if key.text in self.burned:
            raise Rejected(f"{key.text} was removed before")
        if spec.get("name") == "refused" or spec.get("roles") == [f"refuse-{self.name}"]:
            self.burned.add(key.text)
            raise Rejected(f"{self.name} refuses this spec")
        self.things[key.text] = key
        return self.reference(key)

    def reference(self, key: ResourceKey) -> Mapping[str, object]:
        return {"at": key.text}

    async def inspect(self, key: ResourceKey) -> Observation:
        if key.text not in self.things:
            return Observation(Presence.ABSENT)
        return Observation(Presence.READY, self.reference(key), key.plane, key.generation)

    async def remove(self, key: ResourceKey) -> None:
        self.burned.add(key.text)
        self.things.pop(key.text, None)

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        for text, key in self.things.items():
            if key.plane == plane:
                yield OwnedResource(text, key.agent, key.generation, 0.0)

    async def is_open(self, tenant: str, agent: str) -> bool:
        return not self.closed.get(agent, False)

    async def close_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        self.closed[agent] = True
        return True

    async def reopen_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        self.closed[agent] = False
        return True

    async def raise_epoch(
        self, tenant: str, agent: str, *, epoch: int, closed: bool = False
    ) -> None:
        self.closed[agent] = closed

    async def signing_key(self) -> str:
        return f"key-{self.rotations}"

    async def rotate(self, *, away_from: str = "") -> str:
        """Switch to the next key, unless a key other than `away_from` signs already."""
        if not away_from or away_from == await self.signing_key():
            self.rotations += 1
        return await self.signing_key()

    async def invite(self, key: ResourceKey, *, nonce: str = "") -> Invitation | OAuthRefusal:
        """An invitation for an existing client; the same nonce gives the same token."""
        if key.text not in self.things:
            return OAuthRefusal(OAuthError.INVALID_CLIENT, "there is no such client")
        token = f"invitation-{key.text}.{nonce or len(self.invitations)}"
        if token not in self.invitations:
            self.invitations.append(token)
        return Invitation(key.text, token, 300.0)


class MemoryRuntime(Memory):
    """A runtime whose agents are all reached at the address that a test has set."""

    address = "127.0.0.1:1"
    zones = ("here",)
    holding = False
    """While set, no agent gets ready."""

    def reference(self, key: ResourceKey) -> Mapping[str, object]:
        return {"address": self.address, "zone": "here"}

    async def digest(self, spec: Spec) -> Spec:
        if spec.get("network"):
            raise Invalid("runtime.network: this runtime cannot enforce it")
        if spec.get("command") != ["no-such-program"]:
            return spec
        return {**spec, "digests": {"no-such-program": f"{MISSING}command: there is no such thing"}}

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        if "digests" in spec:
            self.burned.add(key.text)
            raise Rejected("command: there is no such thing")
        return await super().ensure(key, spec)

    async def status(self, key: ResourceKey) -> Status:
        return Status(Presence.READY if key.text in self.things else Presence.ABSENT)

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        return Status(Presence.STARTING) if self.holding else await self.status(key)

    async def listens_at(self, key: ResourceKey, address: str) -> bool:
        return key.text in self.things and address == self.address

    async def logs(self, key: ResourceKey, *, lines: int = 100) -> str:
        return "one line\n" * min(lines, 3)

    async def follow(self, key: ResourceKey, *, since: int) -> LogPart:
        return LogPart("more\n", since + 5)

    async def stop(self, key: ResourceKey) -> None:
        self.burned.add(key.text)
        self.things.pop(key.text, None)


def providers() -> dict[str, Any]:
    """The providers of the lifecycle plans."""
    by_name: dict[str, Any] = {name: Memory(name) for name in ("identity", "access", "credentials")}
    return {**by_name, "runtime": MemoryRuntime("runtime")}
