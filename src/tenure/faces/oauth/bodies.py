"""Reads the form, the JSON or the bearer token of a client with the readers of `faces/http`.

A request that cannot be read is refused in one sentence.  It never repeats what was sent, which may
hold a token.
"""

from urllib.parse import parse_qsl

from starlette.requests import Request

from tenure.faces.http import body
from tenure.faces.http.problems import PROBLEMS, ProblemError
from tenure.faces.http.table import refuse_repeated_headers

BODY_BYTES_MAX = 65_536
BODY_SECONDS = 30.0
FIELDS_MAX = 32
BEARER_CHARACTERS_MAX = 8_192
DEPTH_MAX = 16
SENTENCES = {
    "body_too_large": f"The body is over {BODY_BYTES_MAX} bytes long.",
    "request_timeout": "The body did not arrive in time.",
    "unsupported_media_type": "The content type must be {media}.",
}
"""How the problems of a body are said in OAuth's form."""


class UnreadableRequest(Exception):
    """The request cannot be read; `status` is what HTTP calls that."""

    def __init__(self, sentence: str, *, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """The form's fields, each there once; one without a value counts as not sent (RFC 6749)."""
    _refuse_query(request)
    data = await _read(request, "application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(data),
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:  # UnicodeDecodeError too
        raise UnreadableRequest("The form cannot be read.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise UnreadableRequest("A field of the form is there twice.")
    return {name: value for name, value in fields.items() if value}


async def read_json(request: Request) -> dict[str, object]:
    """A JSON object in which no name stands twice."""
    _refuse_query(request)
    data = await _read(request, "application/json")
    try:
        value = body.parse(data, depth_max=DEPTH_MAX)
    except ProblemError:  # its sentence may repeat what was sent
        raise UnreadableRequest("The body is not JSON that can be kept.") from None
    if not isinstance(value, dict):
        raise UnreadableRequest("The body must be a JSON object.")
    return value


def read_bearer(request: Request) -> str | None:
    """The bearer token of the request; None if there is none."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    token = token.strip()
    if len(given) > 1 or scheme.lower() != "bearer" or not token or not token.isascii():
        raise UnreadableRequest("The Authorization header must be one bearer token.", status=401)
    if len(token) > BEARER_CHARACTERS_MAX:
        raise UnreadableRequest("The bearer token is too long.", status=401)
    return token


def _refuse_query(request: Request) -> None:
    """A query ends up in logs, so nothing is taken from it."""
    if request.url.query:
        raise UnreadableRequest("Parameters belong in the body, not in the address.")


async def _read(request: Request, media: str) -> bytes:
    headers: dict[bytes, bytes] = dict(request.scope["headers"])
    try:
        refuse_repeated_headers(request.scope, headers)
        body.refuse_other_media(headers, media)
        return await body.read(
            request.receive, headers, seconds=BODY_SECONDS, bytes_max=BODY_BYTES_MAX
        )
    except body.ClientDisconnected:
        raise UnreadableRequest("The body did not arrive.") from None
    except ProblemError as error:
        sentence = SENTENCES.get(error.code, "A header of the request cannot be read.").format(
            media=media
        )
        raise UnreadableRequest(sentence, status=PROBLEMS[error.code].status) from None
