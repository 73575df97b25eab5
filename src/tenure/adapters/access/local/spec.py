"""Reads an access spec; an unknown field or value is refused with its name."""

import re
from typing import NamedTuple

from tenure.core.errors import Invalid
from tenure.core.limits import GRANT_PATTERN, GRANTS_MAX, IDENTIFIER_CHARACTERS_MAX
from tenure.ports.access import GrantKind
from tenure.ports.provider import Spec

_NAME = re.compile(GRANT_PATTERN)
_QUOTED_CHARACTERS = 80
_FIELDS = {"roles": GrantKind.ROLE, "teams": GrantKind.TEAM}


class DesiredGrants(NamedTuple):
    """The grants of a valid spec."""

    names: tuple[tuple[GrantKind, str], ...]
    granted_by: str


def read(spec: Spec) -> DesiredGrants:
    """Read a spec; Invalid names the field."""
    for field in spec:
        if field not in _FIELDS and field != "granted_by":
            raise Invalid(f"{_quote(field)} is no field of access: roles, teams, granted_by")
    names = [
        (kind, one_name)
        for field, kind in _FIELDS.items()
        for one_name in _names(spec.get(field, ()), field)
    ]
    granted_by = spec.get("granted_by", "")
    if "granted_by" in spec or names:
        granted_by = granter(granted_by)
    return DesiredGrants(tuple(names), str(granted_by))


def name(value: object, field: str) -> str:
    """Check the name of a role or a team."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise Invalid(
            f"{field}: {_quote(value)} is no name;"
            " a letter of a-z, then up to 62 of a-z 0-9 . _ : -"
        )
    return value


def granter(value: object) -> str:
    """Check the granter: a principal or an agent."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise Invalid(f"granted_by: {_quote(value)} names nobody; a principal or an agent's uid")
    if len(value) > IDENTIFIER_CHARACTERS_MAX:
        raise Invalid(f"granted_by is longer than {IDENTIFIER_CHARACTERS_MAX} characters")
    return value


def _names(values: object, field: str) -> list[str]:
    if not isinstance(values, list | tuple):
        raise Invalid(f"{field} must be a list of names, not {_quote(values)}")
    if len(values) > GRANTS_MAX:
        raise Invalid(f"{field} has {len(values)} names; {GRANTS_MAX} is the most")
    names = [name(value, field) for value in values]
    if len(set(names)) < len(names):
        double = next(one for one in names if names.count(one) > 1)
        raise Invalid(f"{field} names {double!r} twice")
    return names


def _quote(value: object) -> str:
    """The value, shortened for an error text."""
    text = ascii(value) if isinstance(value, str) else f"a {type(value).__name__}"
    if len(text) > _QUOTED_CHARACTERS:
        return f"{text[: _QUOTED_CHARACTERS - 3]}..."
    return text
