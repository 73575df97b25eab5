"""Puts something foreign under a key of the identity provider's file."""

from tenure.adapters.identity.local import LocalIdentity
from tenure.core.ids import ResourceKey


async def plant(local: LocalIdentity, key: ResourceKey) -> None:
    """A client of another plane under the same text, as no derived key could be."""
    await local.ensure(key._replace(plane="another", agent="b"), {})
