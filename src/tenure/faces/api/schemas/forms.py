"""Field types and base classes that many request and response bodies share."""

from typing import Annotated

from msgspec import Meta, Struct

from tenure.core.limits import PAGE_MAX

Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]
Instant = Annotated[float, Meta(description="Seconds since 1970.")]
Cursor = Annotated[
    str, Meta(max_length=255, description="`next` of the previous page; empty: the first page.")
]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="The maximum of items on a page.")]


class RequestFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a body or query that a caller sends; an unknown field is refused."""


class ResponseBody(Struct, frozen=True, kw_only=True):
    """The body of a response."""
