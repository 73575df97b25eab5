"""Lets a provider with strict specs take part in the provider's contract.

That suite knows no provider's own words: it says `{"size": 2}` where it means "another spec".
"""

from collections.abc import AsyncIterator, Callable, Mapping

from tenure.core.ids import ResourceKey
from tenure.ports.provider import Observation, OwnedResource, Provider, Spec


class SizedProvider:
    """A provider that is given a spec of its own for each size; `{}` is passed on."""

    def __init__(self, provider: Provider, spec_of: Callable[[int], Spec]) -> None:
        self._provider = provider
        self._spec_of = spec_of

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Ensure the spec of this size."""
        size = spec.get("size")
        own = self._spec_of(size) if isinstance(size, int) else spec
        return await self._provider.ensure(key, own)

    async def inspect(self, key: ResourceKey) -> Observation:
        """Passed on."""
        return await self._provider.inspect(key)

    async def remove(self, key: ResourceKey) -> None:
        """Passed on."""
        await self._provider.remove(key)

    def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Passed on."""
        return self._provider.list_owned(plane)
