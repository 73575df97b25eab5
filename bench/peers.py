"""Installs what bench/operations.py compares Tenure with, once, in places of its own.

The Python packages stand pinned in requirements/peers.txt and live in .venv-peers; Restate's server
comes from npm, pinned here, and lives in bench/.peers/restate. A place is stamped only after its
installation succeeded, and the stamp names what was installed, so a changed pin installs again.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "peers.txt"
ENVIRONMENT = ROOT / ".venv-peers"
RESTATE = ROOT / "bench" / ".peers" / "restate"

RESTATE_VERSION = "1.7.12"
# npm's own digests of the two packages, as its lock files hold them.
RESTATE_INTEGRITY = {
    "linux-x64": "sha512-URotJ1AIqaSCDkRMl4OrQfTLH+NYuOZb3ZsP7wxxiuAB"
    "6pncgPhTUYSvegTF5PTrAShnNyHNpju9kjf2O3QxoA==",
    "linux-arm64": "sha512-aV7YxWvPhp88MjQtObGDhDCTwCBa68wwZOAMmJqDreO0"
    "auHYuSfOqabEx4I90coZsx3zShNusppbTPKprOa+dw==",
}
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class CannotInstall(Exception):
    """A peer could not be installed; the sentence says what to do."""


def python() -> Path:
    """The interpreter of the peers' environment, which is made when it is not there."""
    interpreter = ENVIRONMENT / "bin" / "python"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    wanted = f"{platform.python_version()} {digest}"
    if _stamp(ENVIRONMENT) == wanted:
        return interpreter
    print("installing the peers of requirements/peers.txt into .venv-peers ...", flush=True)
    pins = ("--require-hashes", "-r", REQUIREMENTS)
    if _works("uv", "--version"):
        os.environ.setdefault("UV_LINK_MODE", "copy")
        made = ("uv", "venv", "-q", "--clear", "--no-python-downloads")
        _run(*made, "--python", sys.executable, ENVIRONMENT)
        _run("uv", "pip", "install", "-q", "--compile-bytecode", "--python", interpreter, *pins)
    else:
        _run(sys.executable, "-m", "venv", "--clear", ENVIRONMENT)
        pip = (interpreter, "-m", "pip", "--disable-pip-version-check")
        _run(*pip, "install", "-q", "--only-binary", ":all:", *pins)
    _set_stamp(ENVIRONMENT, wanted)
    return interpreter


def restate_server() -> Path:
    """Restate's server program, fetched with npm when it is not there."""
    kind = f"{platform.system().lower()}-{_MACHINES.get(platform.machine().lower(), 'unknown')}"
    if kind not in RESTATE_INTEGRITY:
        raise CannotInstall(f"Restate's server is not pinned for {kind}")
    package = f"@restatedev/restate-server-{kind}"
    program = RESTATE / "node_modules" / package / "bin" / "restate-server"
    wanted = f"{package} {RESTATE_VERSION}"
    if _stamp(RESTATE) == wanted:
        return program
    if not _works("npm", "--version"):
        raise CannotInstall("npm is not here, and Restate's server comes from it: install Node.js")
    print(f"installing {package} {RESTATE_VERSION} into bench/.peers/restate ...", flush=True)
    # The package with the program alone: the one that wraps it brings a script that reports home.
    # A lock file written here lets npm check what it fetches against the pin.
    shutil.rmtree(RESTATE, ignore_errors=True)
    RESTATE.mkdir(parents=True)
    wants = {"dependencies": {package: RESTATE_VERSION}}
    pinned = {"version": RESTATE_VERSION, "integrity": RESTATE_INTEGRITY[kind]}
    lock = {
        "lockfileVersion": 3,
        "requires": True,
        "packages": {"": wants, f"node_modules/{package}": pinned},
    }
    (RESTATE / "package.json").write_text(json.dumps({"private": True} | wants))
    (RESTATE / "package-lock.json").write_text(json.dumps(lock))
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    _run("npm", "ci", *quiet, "--prefix", RESTATE)
    _set_stamp(RESTATE, wanted)
    return program


def _stamp(place: Path) -> str | None:
    path = place / "installed"
    return path.read_text() if path.exists() else None


def _set_stamp(place: Path, text: str) -> None:
    (place / "installed").write_text(text)


def _works(*command: str) -> bool:
    """Whether a program runs; that its name is found is not enough, for it may be a shim."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(f"{_words(command)}\n{(done.stdout + done.stderr)[-3000:]}")


def _words(command: Sequence[str | Path]) -> str:
    return "this failed: " + " ".join(str(part) for part in command)
