"""Reads the spec of a local process strictly: an unknown field is refused.

Nothing here starts a process; the file system is read only for digests.
"""

import json
import os
import re
import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.adapters.runtime.process.bundle import DigestCache, read_bundle
from tenure.core.errors import Invalid
from tenure.core.limits import LOG_BYTES_MAX, LOG_BYTES_MIN, PORT_MAX, PORT_MIN
from tenure.ports.provider import Spec
from tenure.ports.runtime import MISSING

FIELDS = frozenset(
    {"command", "bundle", "digests", "env", "zone", "protocol", "port", "resources", "log_bytes",
     "state_of"}
)  # fmt: skip
UNSUPPORTED_FIELDS = {
    "image": "a local process runs a command, not an image",
    "network": "a local process shares the machine's network: an egress list cannot be enforced",
    "egress": "a local process shares the machine's network: an egress list cannot be enforced",
}
LIMITS = {
    "cpu_seconds": (resource.RLIMIT_CPU, 1),
    "file_mib": (resource.RLIMIT_FSIZE, 1_048_576),
    "open_files": (resource.RLIMIT_NOFILE, 1),
}
"""Resources that an rlimit bounds for each process, with their unit."""
RESOURCES = frozenset({*LIMITS, "memory_mib", "processes"})
PORT_NAMES = ("PORT", "UVICORN_PORT")
"""Environment variables that tell an agent its port."""
RESERVED = frozenset({"HOME", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", *PORT_NAMES})
"""A spec may not set these; the loader's variables would act before the sandbox does."""
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KEY = re.compile(r"[a-z][a-z0-9]{0,63}\Z")
LOG_BYTES = 1_048_576
TEXTS_CHARACTERS_MAX = 131_072
NUMBER_MAX = 1_000_000_000
QUOTED_CHARACTERS_MAX = 200


class _Missing(Invalid):
    """The spec is valid, but a file that it names does not exist."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """The fields of a valid spec."""

    command: tuple[str, ...]
    zone: str
    bundle: str
    digests: Mapping[str, str]
    env: Mapping[str, str]
    resources: Mapping[str, int]
    port: int
    log_bytes: int
    state_of: tuple[str, ...]
    """Keys of earlier runtimes, newest first, whose working directory it takes over."""
    text: str
    """Canonical text of the spec; equal for equal specs only."""


def read(spec: Spec, *, zones: tuple[str, ...]) -> ProcessSpec:
    """Read a spec; Invalid names the field."""
    for name in spec:
        if name in UNSUPPORTED_FIELDS:
            raise Invalid(f"{name}: {UNSUPPORTED_FIELDS[name]}")
        if name not in FIELDS:
            raise Invalid(f"{name}: a local process has no such field")
    if spec.get("protocol", "http") != "http":
        raise Invalid("protocol: a local process speaks http")
    zone = spec.get("zone", zones[0])
    if zone not in zones:
        raise Invalid(f"zone: there is no {zone!r} here, only {', '.join(zones)}")
    bundle = spec.get("bundle", "")
    if not isinstance(bundle, str) or not _is_sound(bundle) or bundle[:1] not in ("", "/"):
        raise Invalid("bundle: must be the absolute path of a directory")
    env = _texts(spec, "env")
    for name in env:
        if not ENV_NAME.match(name):
            raise Invalid(f"env: {name!r} is not a name: letters, digits and _, no digit first")
        if name in PORT_NAMES:
            raise Invalid(f"env: {name!r} tells the agent its port; `port: N` asks for one")
        if name in RESERVED or name.startswith(("TENURE_", "LD_")):
            raise Invalid(
                f"env: {name!r} cannot be set by a spec: the runtime sets HOME and TENURE_…, and"
                " LD_…, GCONV_PATH, GLIBC_TUNABLES and LOCPATH act before the sandbox starts"
            )
    return ProcessSpec(
        command=_command(spec),
        zone=str(zone),
        bundle=bundle,
        digests=_texts(spec, "digests"),
        env=env,
        resources=_resources(spec),
        port=_number(spec, "port", 0, low=PORT_MIN, high=PORT_MAX),
        log_bytes=_number(spec, "log_bytes", LOG_BYTES, low=LOG_BYTES_MIN, high=LOG_BYTES_MAX),
        state_of=_keys(spec, "state_of"),
        text=json.dumps(spec, sort_keys=True, default=dict),
    )


def _command(spec: Spec) -> tuple[str, ...]:
    command = spec.get("command")
    if not isinstance(command, list | tuple) or not command:
        raise Invalid("command: a list of the program and its arguments")
    if not all(isinstance(part, str) and _is_sound(part) for part in command):
        raise Invalid("command: every part is a text without NUL or lone surrogates")
    if not command[0]:
        raise Invalid("command: the program has no name")
    if sum(map(len, command)) > TEXTS_CHARACTERS_MAX:
        raise Invalid(f"command: more than {TEXTS_CHARACTERS_MAX} characters")
    return tuple(command)


def _texts(spec: Spec, field: str) -> dict[str, str]:
    found = spec.get(field, {})
    if not isinstance(found, Mapping):
        raise Invalid(f"{field}: names with texts")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str) or not _is_sound(name + value):
            raise Invalid(f"{field}: {name!r} must be a text without NUL or lone surrogates")
    if sum(len(name) + len(value) for name, value in found.items()) > TEXTS_CHARACTERS_MAX:
        raise Invalid(f"{field}: more than {TEXTS_CHARACTERS_MAX} characters")
    return dict(found)


def _keys(spec: Spec, field: str) -> tuple[str, ...]:
    found = spec.get(field, [])
    if not isinstance(found, list | tuple) or not all(_KEY.match(str(one)) for one in found):
        raise Invalid(f"{field}: a list of keys")
    return tuple(map(str, found))


def _is_sound(text: str) -> bool:
    """Whether the text can be passed to the kernel: no NUL, valid UTF-8."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _resources(spec: Spec) -> dict[str, int]:
    found = spec.get("resources", {})
    if not isinstance(found, Mapping):
        raise Invalid("resources: names with numbers")
    for name in found:
        if name not in RESOURCES:
            known = ", ".join(sorted(RESOURCES))
            raise Invalid(f"resources: {name!r} is none of {known}")
    return {name: _number(found, name, 0, low=1, high=NUMBER_MAX) for name in found}


def _number(spec: Spec, field: str, default: int, *, low: int, high: int) -> int:
    value = spec.get(field, default)
    if field not in spec:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Invalid(f"{field}: a number from {low} to {high}")
    return value


def program(desired: ProcessSpec, *, path: str) -> str:
    """The file that the command starts: absolute, in the bundle, or on the search path."""
    name = desired.command[0]
    if name.startswith("/"):
        return name
    if "/" in name:
        if not desired.bundle:
            raise Invalid(f"command: {name} is relative, and there is no bundle for it to be in")
        inside = os.path.normpath(name)
        if inside.startswith(".."):
            raise Invalid(f"command: {name} leads out of its bundle")
        return inside
    found = shutil.which(name, path=path)
    if found is None:
        where = f"on the PATH of the control plane in zone {desired.zone}"
        raise _Missing(f"command: {_short(name)} was not found {where}")
    return str(Path(found).absolute())


def pinned_program(desired: ProcessSpec, *, path: str) -> str:
    """The program; Invalid if the search path leads to another file than at acceptance."""
    found = program(desired, path=path)
    if desired.digests and found.startswith("/") and found not in desired.digests:
        name = desired.command[0]
        raise Invalid(f"command: {name} is now {found}, which is not the accepted program")
    return found


def digest(
    spec: Spec, desired: ProcessSpec, *, path: str, digests: DigestCache
) -> dict[str, object]:
    """The spec with a digest of its program, of every argument that is a file, and its bundle.

    A missing file has a reason in place of its digest, and cannot start: see `change_reason`.
    """
    found: dict[str, str] = {}
    where = f"in zone {desired.zone}"
    try:
        start = program(desired, path=path)
    except _Missing as error:
        found[desired.command[0]] = f"{MISSING}{error}"
        start = ""
    named = absolute_files(desired)
    for name in [start, *named] if start.startswith("/") else named:
        try:
            found[name] = digests.of(name)
        except OSError as error:
            problem = f"command: {_short(name)} cannot be read {where}: {error.strerror}"
            found[name] = f"{MISSING}{problem}"
    if desired.bundle:
        try:
            found[desired.bundle] = read_bundle(Path(desired.bundle))
        except RecursionError:
            raise Invalid("bundle: its directories are nested too deeply") from None
        except OSError as error:
            name = _short(str(error.filename or desired.bundle))
            problem = f"bundle: {name} cannot be read {where}: {error.strerror}"
            found[desired.bundle] = f"{MISSING}{problem}"
        else:
            if not start.startswith("/") and not Path(desired.bundle, start).is_file():
                problem = (
                    f"command: there is no {_short(start)} in {_short(desired.bundle)} {where}"
                )
                found.setdefault(desired.command[0], f"{MISSING}{problem}")
    return {**spec, "digests": found}


def _short(name: str) -> str:
    """A name, shortened for an error text."""
    return name if len(name) <= QUOTED_CHARACTERS_MAX else f"{name[:QUOTED_CHARACTERS_MAX]}…"


def absolute_files(desired: ProcessSpec) -> list[str]:
    """The arguments that are absolute paths of files."""
    named = (part for part in desired.command[1:] if part.startswith("/"))
    return [part for part in named if os.path.isfile(part)]  # noqa: PTH113 (long names are no error)


def changed_content_reason(name: str) -> str:
    """A sentence on a file whose content has changed since acceptance, and what to do."""
    remedy = "delete the agent and create it again to run the new content"
    return f"{name} has changed since the spec was accepted; {remedy}"


def change_reason(desired: ProcessSpec, digests: DigestCache, *, first: bool) -> str:
    """A sentence on the first file that has changed since acceptance; "" if none has.

    Bundles are not read here.  Before the `first` generation of an agent has run, a file that did
    not exist at acceptance was made by someone else; later the agent itself may have written it.
    """
    for name, digest in desired.digests.items():
        if digest.startswith(MISSING):  # a file that exists now was not checked at acceptance
            return f"{digest.removeprefix(MISSING)}; so it was when the spec was accepted"
        if name == desired.bundle:
            continue
        try:
            same = digests.of(name) == digest
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if not same:
            return changed_content_reason(name)
    for name in absolute_files(desired) if first and desired.digests else ():
        if name not in desired.digests:
            return f"command: {_short(name)} was no file when the spec was accepted, and is one now"
    return ""
