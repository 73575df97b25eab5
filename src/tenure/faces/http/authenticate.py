"""Who asks: the bearer token of a request, and whether its role suffices.

Nothing is open but the routes whose role is None.  What is said to whoever is not known is always
the same, so that nothing is learnt by guessing.
"""

import re

from tenure.core.errors import Unauthenticated
from tenure.core.roles import Caller, Role
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.state import Authenticate

BEARER = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]{1,512}=*)\Z")
CHALLENGE = (b"www-authenticate", b'Bearer realm="tenure"')


async def caller_of(headers: dict[bytes, bytes], *, authenticate: Authenticate) -> Caller:
    """The caller whose token this is; refused if there is none, or nobody knows it."""
    given = BEARER.match(headers.get(b"authorization", b""))
    if given is None:
        raise ProblemError("unauthenticated", "send a token: Authorization: Bearer TOKEN")
    try:
        return await authenticate(given[1].decode("ascii"))
    except Unauthenticated:
        raise ProblemError(
            "unauthenticated", "this token is not known, or no longer valid"
        ) from None


def authorise(caller: Caller, needed: Role) -> None:
    """Refused if the caller's role does not reach so far."""
    if not caller.role.may(needed):
        raise ProblemError(
            "forbidden", f"this needs the role {needed}; the token has {caller.role}"
        )
