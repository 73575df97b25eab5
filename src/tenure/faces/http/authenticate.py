"""Authentication by bearer token, and the check of the caller's role.

Only routes whose role is None need no token.  The refusal of an unknown token is always the same,
so that guessing reveals nothing.
"""

import re

from tenure.core.errors import Unauthenticated
from tenure.core.roles import Caller, Role
from tenure.faces.http.problems import ProblemError
from tenure.faces.http.state import Authenticate

BEARER = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]{1,512}=*)\Z")
CHALLENGE = (b"www-authenticate", b'Bearer realm="tenure"')


async def caller_of(headers: dict[bytes, bytes], *, authenticate: Authenticate) -> Caller:
    """The caller to whom the token belongs; refuse a missing or unknown token."""
    bearer = BEARER.match(headers.get(b"authorization", b""))
    if bearer is None:
        raise ProblemError("unauthenticated", "send a token: Authorization: Bearer TOKEN")
    try:
        return await authenticate(bearer[1].decode("ascii"))
    except Unauthenticated:
        raise ProblemError("unauthenticated", "this token is unknown or no longer valid") from None


def authorise(caller: Caller, required_role: Role) -> None:
    """Refuse a caller whose role does not include the required one."""
    if not caller.role.may(required_role):
        raise ProblemError(
            "forbidden", f"this needs the role {required_role}; the token has {caller.role}"
        )
