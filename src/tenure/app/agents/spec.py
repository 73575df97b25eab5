"""The spec of an agent: the only definition of its fields, for files and for requests.

Reading is strict.  The refusal of an unknown key names the nearest known key, and the refusal of a
wrong type names the path.  A runtime refuses settings that it cannot enforce
(`RuntimeProvider.ensure`).
"""

import re
from difflib import get_close_matches
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tenure.core.errors import Invalid
from tenure.core.limits import (
    AUDIENCE_PATTERN,
    CREDENTIALS_MAX,
    GRANT_PATTERN,
    GRANTS_MAX,
    IDENTIFIER_CHARACTERS_MAX,
    LOG_BYTES_MAX,
    LOG_BYTES_MIN,
    NAME_PATTERN,
    PORT_MAX,
    PORT_MIN,
    SCOPES_MAX,
)
from tenure.plans.agents.inputs import DRAIN_SECONDS, READY_SECONDS
from tenure.ports.credentials import TTL_SECONDS, TTL_SECONDS_MAX

Name = Annotated[str, Meta(pattern=rf"^{NAME_PATTERN}$(?!\n)", max_length=63)]
Word = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$(?!\n)")
]
Grant = Annotated[str, Meta(pattern=rf"^{GRANT_PATTERN}$(?!\n)", max_length=63)]
"""A role or a team, in the form that the access provider keeps."""
OnDelete = Annotated[
    str, Meta(pattern=rf"^(?:revoke|reassign:{NAME_PATTERN})$(?!\n)", max_length=72)
]
"""The agent is deleted with its parent (`revoke`), or another agent becomes its parent."""
ENV_PATTERN = "[A-Za-z_][A-Za-z0-9_]{0,127}"
Text = Annotated[str, Meta(max_length=4096)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class SpecPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a spec; unknown keys are refused."""


class Resources(SpecPart, frozen=True):
    """Resource limits; a runtime refuses those that it cannot enforce."""

    memory_mib: Annotated[int, Meta(ge=16, le=1_048_576)] | None = None
    open_files: Annotated[int, Meta(ge=16, le=1_048_576)] | None = None
    processes: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    file_mib: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    cpu_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None


class Network(SpecPart, frozen=True):
    """The hosts that the agent may connect to; if absent, the runtime decides."""

    egress: Annotated[tuple[Text, ...], Meta(max_length=64)] | None = None


class Runtime(SpecPart, frozen=True):
    """How and where the agent runs."""

    command: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()
    image: Text | None = None
    bundle: Path | None = None
    kind: Literal["process"] = "process"
    zone: Name | None = None
    protocol: Literal["http"] = "http"
    port: Annotated[int, Meta(ge=PORT_MIN, le=PORT_MAX)] | None = None
    log_bytes: Annotated[int, Meta(ge=LOG_BYTES_MIN, le=LOG_BYTES_MAX)] | None = None
    env: Annotated[
        dict[Annotated[str, Meta(pattern=rf"^{ENV_PATTERN}$(?!\n)")], Text],
        Meta(max_length=128),
    ] = {}
    resources: Resources | None = None
    network: Network | None = None
    ready_seconds: Annotated[float, Meta(gt=0, le=3_600)] = READY_SECONDS
    drain_seconds: Annotated[float, Meta(ge=0, le=3_600)] = DRAIN_SECONDS


class Credential(SpecPart, frozen=True):
    """A credential that the agent may request from the credentials provider."""

    audience: Annotated[
        str, Meta(pattern=rf"^{AUDIENCE_PATTERN}$(?!\n)", max_length=IDENTIFIER_CHARACTERS_MAX)
    ]
    scopes: Annotated[tuple[Word, ...], Meta(max_length=SCOPES_MAX)] = ()
    ttl_seconds: Annotated[int, Meta(ge=1, le=TTL_SECONDS_MAX)] = TTL_SECONDS


class AgentSpec(SpecPart, frozen=True):
    """An agent as its owner wants it."""

    name: Name
    runtime: Runtime
    owner: Annotated[str, Meta(max_length=IDENTIFIER_CHARACTERS_MAX)] = ""
    labels: Annotated[dict[Word, Annotated[str, Meta(max_length=256)]], Meta(max_length=64)] = {}
    roles: Annotated[tuple[Grant, ...], Meta(max_length=GRANTS_MAX)] = ()
    teams: Annotated[tuple[Grant, ...], Meta(max_length=GRANTS_MAX)] = ()
    credentials: Annotated[tuple[Credential, ...], Meta(max_length=CREDENTIALS_MAX)] = ()
    parent: Name | None = None
    on_delete: OnDelete = "revoke"
    retention: Literal["remove", "retain"] = "remove"
    on_drift: Literal["repair", "report"] | None = None


def read_spec(tree: object) -> AgentSpec:
    """The spec in this plain data, or Invalid with a sentence that names the field."""
    try:
        spec = msgspec.convert(tree, AgentSpec)
    except msgspec.ValidationError as error:
        raise Invalid(_sentence(str(error))) from None
    except RecursionError:
        raise Invalid("the agent's spec is nested too deeply") from None
    check_spec(spec)
    return spec


def check_spec(spec: AgentSpec) -> None:
    """Check rules between parts of the spec that its type cannot express; Invalid if one fails."""
    if bool(spec.runtime.command) == bool(spec.runtime.image):
        raise Invalid("runtime: give a command or an image, and only one of them")
    if not spec.owner.isprintable():
        raise Invalid("owner: it holds a character that cannot be shown")
    audiences = [one.audience for one in spec.credentials]
    if twice := [one for one in audiences if audiences.count(one) > 1]:
        raise Invalid(f"credentials: {twice[0]} is named twice")


def spec_to_dict(spec: AgentSpec) -> dict[str, object]:
    """The spec as plain data, without fields that have their default value."""
    return msgspec.json.decode(msgspec.json.encode(spec), type=dict[str, object])


_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?([^`]*)`)?", re.DOTALL)
_KEYS = {
    "": AgentSpec,
    "runtime": Runtime,
    "runtime.resources": Resources,
    "runtime.network": Network,
    "credentials[]": Credential,
}


_MATCHING = re.compile(r"Expected `str` matching regex '\^(.*)\$\(\?!\\\\n\)'")
_WORDS = {
    NAME_PATTERN: "a name is small letters, digits and -, a letter first, 63 at most",
    GRANT_PATTERN: "small letters, digits and . _ : -, a letter first, 63 at most",
    AUDIENCE_PATTERN: "an https:// address of a place alone: no user, query or fragment",
    f"(?:revoke|reassign:{NAME_PATTERN})": "say revoke, or reassign: and the name of an agent",
    ENV_PATTERN: "a variable is called by letters, digits and _, no digit first, 128 at most",
    r"[^=]+=[^\\n]*": "a label is asked for as key=value",
    "[0-9a-f]{32}": "an id is 32 digits of 0-9 and a-f",
    "([0-9a-f]{32})?": "an id is 32 digits of 0-9 and a-f",
}
"""The requirement of each pattern, as a sentence for people."""
_KINDS = {"array": "a list: [one, two]", "object": "a table of keys and values", "str": "text"}


def in_words(message: str) -> str:
    """The library's message about an invalid value, without patterns and type names."""
    if match := _MATCHING.fullmatch(message):
        return _WORDS.get(match[1], f"it has to match {match[1]}")
    for name, words in _KINDS.items():
        message = message.replace(f"Expected `{name}`,", f"expected {words};")
    return message


def _sentence(message: str) -> str:
    """The library's message with the path first; for an unknown key, with the nearest known key."""
    match = _UNKNOWN.fullmatch(message)
    if match is None:
        what, _, where = message.replace("`key` in ", "").partition(" - at `$")
        path = where.rstrip("`").lstrip(".") or "the agent's spec"
        what = in_words(what)
        return f"{path}: {what[:1].lower()}{what[1:]}"
    key, path = match[1][:128], match[2] or ""
    struct = _KEYS.get(re.sub(r"\d+", "", path))
    known = list(struct.__struct_fields__) if struct else []
    near = get_close_matches(key, known, n=1)
    where = f"{path}.{key}" if path else key
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return f"{where}: there is no such field; {hint}"
