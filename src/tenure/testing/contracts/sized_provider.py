"""Adapts a provider with a strict spec to the contract of every provider.

That contract uses the spec `{"size": n}`, because it knows no provider's own fields.
"""

from collections.abc import AsyncIterator, Callable, Mapping

from tenure.core.ids import ResourceKey
from tenure.ports.provider import Observation, OwnedResource, Provider, Spec


class SizedProvider:
    """A provider that gets its own spec for each size; `{}` is passed through."""

    def __init__(self, provider: Provider, spec_of: Callable[[int], Spec]) -> None:
        self._provider = provider
        self._spec_of = spec_of

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Call ensure with the spec of this size."""
        size = spec.get("size")
        own = self._spec_of(size) if isinstance(size, int) else spec
        return await self._provider.ensure(key, own)

    async def inspect(self, key: ResourceKey) -> Observation:
        """Pass the call through."""
        return await self._provider.inspect(key)

    async def remove(self, key: ResourceKey) -> None:
        """Pass the call through."""
        await self._provider.remove(key)

    def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Pass the call through."""
        return self._provider.list_owned(plane)
