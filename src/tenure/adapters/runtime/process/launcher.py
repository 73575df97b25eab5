"""The settings for starting agents, and the launch configuration of a keeper."""

import resource
import zlib
from pathlib import Path
from typing import NamedTuple

from tenure.adapters.runtime.process import groups, process_spec, sandbox
from tenure.adapters.runtime.process.process_spec import ProcessSpec
from tenure.adapters.runtime.process.runtime_dir import RuntimeDir, group_of
from tenure.core.ids import ResourceKey

PROCESSES = 512
"""Default limit of processes in one tree, where it can be enforced."""


class Launcher(NamedTuple):
    """Settings for starting and ending agents."""

    path: str
    """Search path of programs."""
    grace_ms: int
    """Time between SIGTERM and SIGKILL."""
    end_seconds: float
    """How long a keeper may take to end after the grace period; then it is killed."""
    hidden: tuple[str, ...]
    """Directories that a sandboxed agent sees empty."""
    logs_kept: int
    """Removed runtimes whose logs are kept."""
    sandbox: str
    """Path of bubblewrap; empty without a sandbox."""
    groups: groups.Groups

    def make_launch_config(
        self,
        key: ResourceKey,
        desired: ProcessSpec,
        directory: RuntimeDir,
        *,
        root: Path,
        program: str,
        start: int,
    ) -> list[tuple[str, str]]:
        """Return the launch configuration of this spec's keeper; `start` numbers its starts."""
        requested = desired.resources
        cwd = str(directory.bundle if desired.bundle else directory.work)
        program = str(Path(cwd, program))  # unchanged if it is absolute
        command = [*desired.command]
        if self.sandbox:
            outside = [program, *process_spec.absolute_files(desired)]
            words = sandbox.wrap(
                self.sandbox,
                hidden=(str(root), *self.hidden),
                readable=outside,
                writable=tuple(dict.fromkeys((str(directory.work), cwd))),
            )
            command = [*words, program, *command[1:]]
        env = {"PATH": self.path, "LANG": "C.UTF-8", **desired.env, "HOME": str(directory.work)}
        env |= {"TENURE_KEY": key.text, "TENURE_DIRECTORY": str(directory.path)}
        limits = [
            (number, requested[name] * unit)
            for name, (number, unit) in process_spec.LIMITS.items()
            if name in requested
        ]
        limits.append((resource.RLIMIT_CORE, 0))
        if "memory_mib" in requested and not self.groups.memory:
            limits.append((resource.RLIMIT_DATA, requested["memory_mib"] * groups.MIB))
        return [
            ("start", str(start)),
            ("spec", desired.text),
            ("exec", self.sandbox or program),
            *(("command", part) for part in command),
            *(("env", f"{name}={value}") for name, value in env.items()),
            *(("port_name", name) for name in process_spec.PORT_NAMES),
            ("cwd", cwd),
            ("port", str(desired.port or directory.state().port)),
            ("hint", str(zlib.crc32(str(directory.path).encode()))),
            *(("limit", f"{number}={value}") for number, value in limits),
            ("log_bytes", str(desired.log_bytes)),
            ("grace_ms", str(self.grace_ms)),
            ("sandboxed", "yes" if self.sandbox else ""),
            ("strict", "yes" if requested.keys() & {"memory_mib", "processes"} else ""),
            *self.groups.launch_config(
                group_of(directory),
                processes=requested.get("processes", PROCESSES),
                memory_mib=requested.get("memory_mib", 0),
            ),
        ]
