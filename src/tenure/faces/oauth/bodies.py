"""Reads the form, the JSON or the bearer token of a client with the readers of `faces/http`.

A request that cannot be read is refused with one sentence.  The sentence never repeats a part of
the request, which may contain a token.
"""

from urllib.parse import parse_qsl

from starlette.requests import Request

from tenure.faces.http import body
from tenure.faces.http.problems import PROBLEMS, ProblemError
from tenure.faces.http.route_table import refuse_repeated_headers

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
"""The error descriptions of OAuth for problems of a body."""


class UnreadableRequest(Exception):
    """The request cannot be read; `status` is the HTTP status of the response."""

    def __init__(self, sentence: str, *, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """The form's fields, each at most once; a field without a value is ignored (RFC 6749)."""
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
    except ValueError:  # includes UnicodeDecodeError
        raise UnreadableRequest("The form cannot be read.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise UnreadableRequest("A field of the form occurs twice.")
    return {name: value for name, value in fields.items() if value}


async def read_json(request: Request) -> dict[str, object]:
    """A JSON object without duplicate keys."""
    _refuse_query(request)
    data = await _read(request, "application/json")
    try:
        value = body.parse(data, depth_max=DEPTH_MAX)
    except ProblemError:  # its text may repeat a part of the request
        raise UnreadableRequest("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise UnreadableRequest("The body must be a JSON object.")
    return value


def read_bearer(request: Request) -> str | None:
    """The bearer token of the request; None if there is none."""
    headers = request.headers.getlist("authorization")
    if not headers:
        return None
    scheme, _, token = headers[0].partition(" ")
    token = token.strip()
    if len(headers) > 1 or scheme.lower() != "bearer" or not token or not token.isascii():
        raise UnreadableRequest("The Authorization header must be one bearer token.", status=401)
    if len(token) > BEARER_CHARACTERS_MAX:
        raise UnreadableRequest("The bearer token is too long.", status=401)
    return token


def _refuse_query(request: Request) -> None:
    """Refuse a query string, because query strings end up in logs."""
    if request.url.query:
        raise UnreadableRequest("Parameters belong in the body, not in the URL.")


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
