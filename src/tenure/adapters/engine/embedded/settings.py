"""Limits of an embedded engine."""

from dataclasses import dataclass

from tenure.core.errors import Invalid

LEASE_TTL_SECONDS_MIN = 0.05


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits of an embedded engine."""

    concurrency_max: int = 2_000
    """Operations that are executed at the same time; more are queued."""
    claim_max: int = 2_000
    """Operations claimed with one commit."""
    lease_ttl_seconds: float = 15.0
    """A worker that has not renewed its lease for this long counts as dead."""

    def __post_init__(self) -> None:
        """Refuse limits under which accepted operations would not move."""
        if self.concurrency_max < 1 or self.claim_max < 1:
            message = "an engine moves and claims at least one operation at a time"
            raise Invalid(message)
        if not LEASE_TTL_SECONDS_MIN <= self.lease_ttl_seconds < float("inf"):
            message = (
                f"a lease lasts at least {LEASE_TTL_SECONDS_MIN:g} s, "
                f"not {self.lease_ttl_seconds!r}: it could not be renewed in time"
            )
            raise Invalid(message)
