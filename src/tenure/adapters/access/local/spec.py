"""What an access spec may say; whatever else it says is refused with a sentence on the field."""

import re
from typing import NamedTuple

from tenure.core.errors import Invalid
from tenure.core.limits import GRANT_PATTERN, GRANTS_MAX, IDENTIFIER_CHARACTERS_MAX
from tenure.ports.access import GrantKind
from tenure.ports.provider import Spec

_NAME = re.compile(GRANT_PATTERN)
_SHOWN_CHARACTERS = 80
_FIELDS = {"roles": GrantKind.ROLE, "teams": GrantKind.TEAM}


class DesiredGrants(NamedTuple):
    """A spec that was read."""

    names: tuple[tuple[GrantKind, str], ...]
    granted_by: str


def read(spec: Spec) -> DesiredGrants:
    """Read it, or Invalid."""
    for field in spec:
        if field not in _FIELDS and field != "granted_by":
            raise Invalid(f"{_shown(field)} is no field of access: roles, teams, granted_by")
    names = [
        (kind, said)
        for field, kind in _FIELDS.items()
        for said in _names(spec.get(field, ()), field)
    ]
    granted_by = spec.get("granted_by", "")
    if "granted_by" in spec or names:
        granted_by = granter(granted_by)
    return DesiredGrants(tuple(names), str(granted_by))


def name(value: object, field: str) -> str:
    """A role's or a team's name, or Invalid."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise Invalid(
            f"{field}: {_shown(value)} is no name;"
            " a letter of a-z, then up to 62 of a-z 0-9 . _ : -"
        )
    return value


def granter(value: object) -> str:
    """Who grants: a principal or an agent, or Invalid."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise Invalid(f"granted_by: {_shown(value)} names nobody; a principal or an agent's uid")
    if len(value) > IDENTIFIER_CHARACTERS_MAX:
        raise Invalid(f"granted_by is longer than {IDENTIFIER_CHARACTERS_MAX} characters")
    return value


def _names(values: object, field: str) -> list[str]:
    if not isinstance(values, list | tuple):
        raise Invalid(f"{field} must be a list of names, not {_shown(values)}")
    if len(values) > GRANTS_MAX:
        raise Invalid(f"{field} has {len(values)} names; {GRANTS_MAX} is the most")
    names = [name(value, field) for value in values]
    if len(set(names)) < len(names):
        double = next(one for one in names if names.count(one) > 1)
        raise Invalid(f"{field} names {double!r} twice")
    return names


def _shown(value: object) -> str:
    """What was said, as far as a sentence has room for it."""
    text = ascii(value) if isinstance(value, str) else f"a {type(value).__name__}"
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[: _SHOWN_CHARACTERS - 3]}..."
    return text
