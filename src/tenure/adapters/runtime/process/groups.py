"""Control groups for runtimes, in each hierarchy where this process may create them.

Version 2 has `cgroup.kill`; the pids and memory controllers of either version bound a whole process
tree.  `Groups` lists the hierarchies in which a group could be created; without the permission or
the controller a field is empty.
"""

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1_048_576


@dataclass(frozen=True, slots=True)
class Groups:
    """Directories in which groups can be created, by their use."""

    kill: str = ""
    pids: str = ""
    memory: str = ""
    memory_file: str = ""

    def launch_config(self, name: str, *, processes: int, memory_mib: int) -> list[tuple[str, str]]:
        """Orders for the keeper: the groups to create and the values to write."""
        found = [("group", path) for path in self.paths(name)]
        if self.pids and processes:
            found.append(("set", f"{self.pids}/{name}/pids.max={processes}"))
        if self.memory and memory_mib:
            found.append(("set", f"{self.memory}/{name}/{self.memory_file}={memory_mib * MIB}"))
        return found

    def paths(self, name: str) -> list[str]:
        """The groups of one runtime."""
        above = dict.fromkeys(path for path in (self.kill, self.pids, self.memory) if path)
        return [f"{path}/{name}" for path in above]


def available(probe: str) -> Groups:
    """The usable hierarchies, tested by creating a group called `probe` in each."""
    kill = pids = memory = memory_file = ""
    for directory in _own_groups():
        group = Path(directory, probe)
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            files = {path.name for path in group.iterdir()}
        finally:
            group.rmdir()
        kill = directory if "cgroup.kill" in files else kill
        pids = directory if "pids.max" in files else pids
        for name in ("memory.max", "memory.limit_in_bytes"):
            if name in files:
                memory, memory_file = directory, name
    return Groups(kill, pids, memory, memory_file)


def _own_groups() -> list[str]:
    """The control groups of this process, in every mounted hierarchy."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    found = []
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        top, place = before.split()[3:5]
        for number, controllers, path in own:
            v2 = kind == "cgroup2" and number == "0"
            names = set(controllers.split(",")) & {"pids", "memory"}
            v1 = kind == "cgroup" and bool(names & set(options.split()[-1].split(",")))
            if v2 or v1:
                inner = os.path.relpath(path, top)
                found.append(place if inner.startswith(".") else f"{place}/{inner}")
    return found
