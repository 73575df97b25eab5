"""Finds out by itself whether a home holds exactly the resources of its agents, and says what not.

Standard library alone, and nothing of Tenure: it reads copies of every provider's own file, the
runtimes' directories and the process table, and has its own idea of what an agent in each state
must hold.  `check` says what is wrong, in sentences; none is the good answer.

usage: checker.py HOME [PROMISES]    PROMISES is a JSON list of [operation, kind, agent]
"""

import hashlib
import http.client
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

STORE, PROVIDERS = "tenure", ("identity", "access", "credentials")
ZONES = ("local-a", "local-b")
ENDS = {"SUCCEEDED", "COMPENSATED", "ABANDONED"}
EXISTING = {"READY", "SUSPENDED"}
GONE = {"CREATE_FAILED", "DELETED"}
COPY_TRIES = 200
GROUPS = Path("/sys/fs/cgroup")

Row = dict[str, Any]


class World(NamedTuple):
    """Everything there is, as rows by table, and as processes."""

    store: Mapping[str, list[Row]]
    providers: Mapping[str, Mapping[str, list[Row]]]
    homes: Mapping[str, "Home"]
    ports: Mapping[str, str]
    groups: Sequence[str]
    processes: Sequence["Process"]


class Promise(NamedTuple):
    """An operation that was acknowledged."""

    operation: str
    kind: str
    agent: str


class Home(NamedTuple):
    """The directory of one runtime: whose it is, and what its keeper has last said."""

    path: Path
    owner: Row
    state: Row


class Process(NamedTuple):
    """A process that belongs to some runtime: its keeper, or what carries its tag."""

    pid: int
    key: str
    keeper: bool


# ------------------------------------------------------------------------------------ what there is


def read_world(home: Path, store: Mapping[str, list[Row]] | None = None) -> World:
    """One look at everything; `store` are the tables of a store that is not in the home."""
    homes = {
        path.name: _home(path) for zone in ZONES for path in _list_folder(home / "runtimes" / zone)
    }
    with copy_databases(home, PROVIDERS if store is not None else (STORE, *PROVIDERS)) as bases:
        store = _tables(bases[STORE]) if store is None else store
        providers = {name: _tables(bases[name]) for name in PROVIDERS}
    known_keys = {str(row["key"]) for row in store["intent"] if row["slot"] == "runtime"}
    return World(
        store,
        providers,
        homes,
        {path.name: path.read_text() for path in _list_folder(home / "runtimes" / "ports")},
        list(_groups(home, known_keys)),
        list(_processes(home, known_keys)),
    )


@contextmanager
def copy_databases(home: Path, names: Sequence[str]) -> Iterator[dict[str, sqlite3.Connection]]:
    """Private copies of these files, each with its log as it was at one instant."""
    with tempfile.TemporaryDirectory() as place:
        bases = {}
        for name in names:
            _copy(home / f"{name}.db", Path(place))
            bases[name] = sqlite3.connect(Path(place) / f"{name}.db")
            bases[name].row_factory = sqlite3.Row
        try:
            yield bases
        finally:
            for base in bases.values():
                base.close()


def _copy(base: Path, place: Path) -> None:
    """File and log belong together only if neither has changed meanwhile."""
    log = base.with_name(f"{base.name}-wal")
    for _ in range(COPY_TRIES):
        before = _marks(base, log)
        (place / log.name).unlink(missing_ok=True)
        shutil.copyfile(base, place / base.name)
        if log.exists():
            shutil.copyfile(log, place / log.name)
        if _marks(base, log) == before:
            return
        time.sleep(0.01)
    raise RuntimeError(f"{base} is never still")


def _marks(*paths: Path) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size))
    return found


def _tables(base: sqlite3.Connection) -> dict[str, list[Row]]:
    names = base.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {
        name: [dict(row) for row in base.execute(f'SELECT * FROM "{name}"')] for (name,) in names
    }


def _list_folder(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _home(path: Path) -> Home:
    return Home(path, _json(path / "owner.json"), _json(path / "state.json"))


def _json(path: Path) -> Row:
    try:
        read: Row = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return read


def _processes(home: Path, known_keys: set[str]) -> Iterator[Process]:
    """By the tag in the environment, by the directory it names, or as a keeper of one."""
    below = f"{home.absolute()}/runtimes/"
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            entries = (place / "environ").read_bytes().split(b"\0")
            kept = _key_of_keeper(place, below)
        except OSError:
            continue
        env = dict(os.fsdecode(one).partition("=")[::2] for one in entries if one)
        key, directory = env.get("TENURE_KEY", ""), env.get("TENURE_DIRECTORY", "")
        if key in known_keys or directory.startswith(below):
            yield Process(int(place.name), key, keeper=False)
        elif kept:
            yield Process(int(place.name), kept, keeper=True)


def _key_of_keeper(place: Path, below: str) -> str:
    """The key whose lock this process has open: then it is its keeper."""
    for file in (place / "fd").iterdir():
        try:
            path = str(file.readlink())
        except OSError:
            continue
        if path.startswith(below) and path.endswith("/lock"):
            return path.removeprefix(below).split("/")[1]
    return ""


def _groups(home: Path, known_keys: set[str]) -> Iterator[str]:
    """The keys whose control groups are there, in whichever hierarchy."""
    names = {}
    for key in known_keys:
        for zone in ZONES:
            path = f"{home.absolute()}/runtimes/{zone}/{key}"
            names[f"tenure-{key}-{zlib.crc32(path.encode()):08x}"] = key
    for _, directories, _ in os.walk(GROUPS):
        for name in [name for name in directories if name.startswith("tenure-")]:
            directories.remove(name)
            if name in names:
                yield names[name]


# ----------------------------------------------------------------------------- what there should be


def check(
    home: Path,
    promises: Sequence[Promise] = (),
    *,
    listed_agents: Mapping[str, str] | None = None,
    store: Mapping[str, list[Row]] | None = None,
) -> list[str]:
    """Everything that is not as it should be once nothing is under way.

    `promises` are operations that were acknowledged; `listed` are the states of all
    agents by their names, as a caller is told them; `store` are the tables of a store elsewhere.
    """
    world = read_world(home, store)
    wrong = [
        *_broken_promises(world, promises),
        *_unsettled_agents(world),
        *_wrong_reservations(world),
        *_audit_breaks(world),
    ]
    there = {row["name"]: row["state"] for row in world.store["agent"] if row["state"] != "DELETED"}
    if listed_agents is not None and listed_agents != there:
        wrong.append(f"the agents are {there}, and listed are {listed_agents}")
    for name in PROVIDERS:
        wrong += _wrong_resources(world, name)
    wrong += [
        *_wrong_grants(world),
        *_wrong_credentials(world),
        *_wrong_closings(world),
        *_running(world),
    ]
    wrong += [f"the directory of {key} is half deleted" for key in sorted(litter(home))]
    return wrong


def _broken_promises(world: World, promises: Sequence[Promise]) -> Iterator[str]:
    rows = {row["id"]: row for row in world.store["operation"]}
    for operation, kind, agent in promises:
        row = rows.get(operation)
        if row is None:
            yield f"operation {operation} ({kind} of {agent}) was accepted and is lost"
        elif (row["kind"], row["agent"]) != (kind, agent):
            found = f"{row['kind']} of {row['agent']}"
            yield f"operation {operation} was accepted as {kind} of {agent} and is {found}"
    for row in rows.values():
        if row["state"] not in ENDS:
            yield f"operation {row['id']} ({row['kind']}) is {row['state']}: {row['error']}"


def _unsettled_agents(world: World) -> Iterator[str]:
    """Every agent stands still, and has its name to itself."""
    names = {(row["tenant"], row["name"]): row["agent"] for row in world.store["agent_name"]}
    for row in world.store["agent"]:
        if row["state"] not in EXISTING | GONE:
            yield f"{_agent_label(row)} stays {row['state']}"
        if row["operation"] or row["next"]:
            yield f"{_agent_label(row)} is held by operation {row['operation'] or row['next']}"
        whose = names.get((row["tenant"], row["name"]))
        if row["state"] != "DELETED" and whose != row["uid"]:
            yield f"{_agent_label(row)} is {row['state']} and its name belongs to {whose}"
    uids = {row["uid"]: row for row in world.store["agent"]}
    for (_, name), uid in names.items():
        if uid not in uids or uids[uid]["state"] == "DELETED":
            yield f"the name {name} belongs to {uid}, which is gone"


def _wrong_reservations(world: World) -> Iterator[str]:
    """One reservation for each agent that exists."""
    reserved = [row["agent"] for row in world.store["reservation"] if row["kind"] == "agents"]
    there = [row["uid"] for row in _existing(world)]
    for uid in set(reserved) - set(there):
        yield f"a place is reserved for agent {uid}, which does not exist"
    for uid in set(there) - set(reserved):
        yield f"no place is reserved for agent {uid}"


def _audit_breaks(world: World) -> Iterator[str]:
    """Each entry's hash is that of its values after the hash before it."""
    previous = ""
    for number, row in enumerate(world.store["audit"], 1):
        *values, last = row.values()
        text = json.dumps([previous, *values], ensure_ascii=True, separators=(",", ":"))
        if values[0] != number or hashlib.sha256(text.encode()).hexdigest() != last:
            yield f"the audit log is broken at entry {number}"
            return
        previous = last


def _wrong_resources(world: World, provider: str) -> Iterator[str]:
    """One resource for each agent that exists, under the key that was intended; no other."""
    there = {row["uid"]: row for row in _existing(world)}
    keys = {row["key"] for row in world.store["intent"] if row["slot"] == provider}
    found: dict[str, list[str]] = {}
    for row in world.providers[provider]["resource"]:
        if row["state"] == "PRESENT":
            found.setdefault(row["agent"], []).append(row["key"])
            if row["key"] not in keys:
                yield f"{provider} holds {row['key']}, which nobody has asked for"
    if provider == "identity":
        clients = sorted(row["id"] for row in world.providers[provider]["client"])
        held = sorted(key for some in found.values() for key in some)
        for one in sorted({*clients} ^ {*held}):
            yield f"identity: client {one} is {'extra' if one in clients else 'missing'}"
    for uid in found.keys() - there.keys():
        yield f"{provider} holds {', '.join(found[uid])} of agent {uid}, which does not exist"
    for uid, row in there.items():
        count = len(found.get(uid, ()))
        if count != 1:
            yield f"{provider} holds {count} resources of {_agent_label(row)}, not 1"


def _wrong_grants(world: World) -> Iterator[str]:
    """Exactly the roles and teams of every agent that exists."""
    expected = set()
    for row in _existing(world):
        spec = _spec(row)
        expected |= {(row["uid"], "role", name) for name in spec.get("roles", ())}
        expected |= {(row["uid"], "team", name) for name in spec.get("teams", ())}
    found = [
        (row["subject"], row["kind"], row["name"]) for row in world.providers["access"]["grant"]
    ]
    yield from _differences("access: the grant", expected, found)


def _wrong_credentials(world: World) -> Iterator[str]:
    """Exactly the credentials of every agent that exists."""
    expected = {
        (
            row["uid"],
            one["audience"],
            tuple(sorted(one.get("scopes", ()))),
            one.get("ttl_seconds", 300),
        )
        for row in _existing(world)
        for one in _spec(row).get("credentials", ())
    }
    found = [
        (
            row["agent"],
            row["audience"],
            tuple(sorted(json.loads(row["scopes"]))),
            row["ttl_seconds"],
        )
        for row in world.providers["credentials"]["registration"]
    ]
    yield from _differences("credentials: the registration", expected, found)


def _wrong_closings(world: World) -> Iterator[str]:
    """Who serves may be given credentials, who is suspended may not; nobody forgot to say so."""
    for provider, table in (("credentials", "closing"), ("identity", "epoch")):
        shut = {row["agent"]: bool(row["closed"]) for row in world.providers[provider][table]}
        for row in _existing(world):
            is_shut = shut.get(row["uid"], False)
            if is_shut != (row["state"] == "SUSPENDED"):
                word = "closed" if is_shut else "open"
                yield f"{provider} is {word} for {_agent_label(row)}, which is {row['state']}"


def _running(world: World) -> Iterator[str]:
    """One runtime that answers for each agent that serves, and nothing else that runs or lies."""
    expected = {}
    for row in _existing(world):
        if row["serving"]:
            expected[json.loads(row["serving"])["key"]] = row
            if row["state"] == "SUSPENDED" and not _is_kept_warm(world, row):
                yield f"{_agent_label(row)} is SUSPENDED and its runtime was not to be kept"
        elif row["state"] == "READY":
            yield f"{_agent_label(row)} is READY and nothing serves it"
    running: dict[str, list[Process]] = {}
    for process in world.processes:
        running.setdefault(process.key, []).append(process)
    for key, some in running.items():
        if key not in expected:
            pids = ", ".join(str(process.pid) for process in some)
            yield f"runtime: processes {pids} of {key!r} belong to no agent that is served"
    for name, found in (("directory", world.homes), ("group", world.groups)):
        for key in sorted({*found} - {*expected}):
            yield f"runtime: {name} of {key} is left behind"
    for port, key in world.ports.items():
        if key not in expected:
            yield f"runtime: port {port} is kept for {key!r}, which serves nobody"
    for key, row in expected.items():
        yield from _serving(world, key, row, running.get(key, []))


def _is_kept_warm(world: World, agent: Row) -> bool:
    """Whether the last of the operations that suspended it was asked to keep its runtime."""
    kinds = {"suspend_agent", "stop_agent"}
    shut = [
        row
        for row in world.store["operation"]
        if row["agent"] == agent["uid"] and row["kind"] in kinds and row["state"] == "SUCCEEDED"
    ]
    last = max(shut, key=lambda row: row["generation"], default=None)
    return last is not None and bool(json.loads(last["input"])["keep_runtime"])


def _serving(world: World, key: str, row: Row, some: list[Process]) -> Iterator[str]:
    home = world.homes.get(key)
    if home is None:
        yield f"runtime: {_agent_label(row)} is served by {key}, which has no directory"
        return
    if home.owner.get("agent") != row["uid"]:
        yield f"runtime: {key} belongs to {home.owner.get('agent')}, not to {_agent_label(row)}"
    keepers = [process.pid for process in some if process.keeper]
    agents = [process.pid for process in some if not process.keeper]
    if keepers != [home.state.get("keeper")]:
        yield f"runtime: keepers {keepers} of {_agent_label(row)}, not the one that says it is"
    if home.state.get("pid") not in agents:
        yield f"runtime: the process of {_agent_label(row)} is not among {agents}"
    for pid in agents:
        if not {*_above(pid)} & {*keepers}:
            yield f"runtime: process {pid} of {_agent_label(row)} is not below its keeper"
    if not _answers(int(home.state.get("port", 0))):
        yield f"runtime: {_agent_label(row)} does not answer /ping"


def _above(pid: int) -> Iterator[int]:
    """The parents of a process, nearest first."""
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(stat.rpartition(")")[2].split()[1])
        yield pid


def _answers(port: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as line:
            line.request("GET", "/ping")
            answer = line.getresponse()
            return answer.status == 200 and "status" in json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _differences(what: str, expected: set[Any], found: list[Any]) -> Iterator[str]:
    for one in sorted(expected - set(found)):
        yield f"{what} {one} is missing"
    for one in sorted(set(found) - expected):
        yield f"{what} {one} is extra"
    if len(found) != len(set(found)):
        yield f"{what}: some are there twice"


def _existing(world: World) -> list[Row]:
    return [row for row in world.store["agent"] if row["state"] in EXISTING]


def _spec(row: Row) -> Row:
    spec: Row = json.loads(row["spec"])["spec"]
    return spec


def _agent_label(row: Row) -> str:
    return f"agent {row['name']} ({row['uid']})"


def litter(home: Path) -> set[str]:
    """Keys whose directories are half deleted: nothing runs in them, and nothing finds them."""
    return {path.name for path in _list_folder(home / "runtimes" / "trash")}


def main(words: Sequence[str]) -> int:
    """Print what is wrong, one sentence a line."""
    promises = json.loads(Path(words[1]).read_text()) if words[1:] else []
    wrong = check(Path(words[0]), [Promise(*one) for one in promises])
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
