"""The keeper: one small process for each runtime; it outlives the plane, nothing outlives it.

It holds the lock of its directory for as long as it lives, starts the agent, is the parent of last
resort of everything the agent starts, bounds the log, keeps the exit code, and on SIGTERM removes
the whole tree (SIGQUIT: without the grace).  It reads `orders`, which the provider wrote before,
and obeys a tombstone that is older than its start.

Standard library alone, and of it what loads fast: `signal`, `socket`, `json` and `ctypes` would
treble the start.  Nothing of Tenure is imported here.

usage: python -I -S -c '…; keeper.main()', with its directory on standard input
"""

# pathlib alone takes longer to load than all of this:
# ruff: noqa: PTH102, PTH104, PTH106, PTH108, PTH110, PTH119, PTH120, PTH123, PTH208

import _signal  # type: ignore[import-not-found]
import _socket
import errno
import fcntl
import os
import resource
import select
import time

LOCK, ORDERS, STATE, WORK, BUNDLE = "lock", "orders", "state.json", "work", "bundle"
ERRORS = "keeper.err"
LOG = "log."
"""A log file is called by the offset of its first byte in all that the agent ever printed."""
FILES_MAX = 2
PORTS = "ports"
BURNED = "burned"
PORT_FIRST, PORT_COUNT = 20_000, 12_768
"""Below the range from which the kernel takes ports for outgoing connections."""
HELD, TOMBSTONE, UNREADABLE, UNTOLD = 3, 4, 5, 6
"""Exit codes of a keeper that leaves without having started anything."""
LOCK_TRIES = 60
"""Somebody who looks whether the lock is held has it for an instant: try again, 2 ms apart."""
LAST_GIVEN = 2
"""Standard input, the way to answer, and errors."""
CHUNK = 65_536
DRAIN_CHUNKS = 64
"""What is still read of a log after the end."""
SET_PDEATHSIG, SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 1, 36, 38
SIGQUIT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGSTOP, SIGXFSZ = 3, 9, 13, 15, 17, 19, 25


class Orders:
    """What the provider wrote: a list of texts for each name, in a form that needs no parser."""

    def __init__(self, raw: bytes) -> None:
        """From `name NUL value NUL name NUL value NUL`."""
        parts = raw.split(b"\0")
        self._lists: dict[str, list[str]] = {}
        for name, value in zip(parts[0::2], parts[1::2], strict=False):
            self._lists.setdefault(name.decode(), []).append(os.fsdecode(value))

    def all(self, name: str) -> list[str]:
        """Every value of this name, in order."""
        return self._lists.get(name, [])

    def text(self, name: str) -> str:
        """The only value, or nothing."""
        return self.all(name)[0] if self.all(name) else ""

    def number(self, name: str) -> int:
        """The only value as a number, or 0."""
        return int(self.text(name) or 0)


def encode(orders: list[tuple[str, str]]) -> bytes:
    """The other way round; no value holds a NUL (the provider sees to it)."""
    return b"".join(os.fsencode(part) + b"\0" for pair in orders for part in pair)


def prctl(option: int, value: int) -> None:
    """Linux's prctl, by the quickest way there is."""
    try:
        from _ctypes import call_function, dlopen, dlsym  # noqa: PLC0415 (see the fallback)
    except ImportError:
        import ctypes  # noqa: PLC0415 (thrice as slow, and always there)

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    else:
        handle = dlopen(None, 0)  # type: ignore[arg-type]
        call_function(dlsym(handle, "prctl"), (option, value, 0, 0, 0))


def started_at(pid: int | str) -> int:
    """When this process started, in ticks since the machine did: with the pid, its identity."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rsplit(b")", 1)[1].split()[19])


def boot() -> str:
    """The identity of this run of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def children(pid: int) -> list[int]:
    """The direct children of all threads of this process; nothing of one that is gone."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Everything below this process, parents first."""
    found = children(pid)
    for one in found:  # grows while it is walked
        found += [child for child in children(one) if child not in found]
    return found


def write_whole(path: str, data: bytes, *, flush: bool = True) -> None:
    """Replace a file so that a crash leaves the old one or the new one.

    Without `flush` that holds for a crash of ours and not for one of the machine.
    """
    with open(f"{path}.new", "wb") as file:
        file.write(data)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def plain(text: str) -> str:
    """A text that stands between quotes in JSON as it is."""
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "?" for c in text)


class Log:
    """What the agent prints, in at most two files of half the bound each: the newest is kept."""

    def __init__(self, directory: str, bound: int) -> None:
        """Goes on where an earlier keeper of this directory ended."""
        self._directory = directory
        self._half = max(bound // 2, 1)
        self._bases = sorted(
            int(name[len(LOG) :])
            for name in os.listdir(directory)
            if name.startswith(LOG) and name[len(LOG) :].isdigit()
        ) or [0]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(self._path(self._bases[-1]), flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def _path(self, base: int) -> str:
        return f"{self._directory}/{LOG}{base}"

    def write(self, data: bytes) -> None:
        """Keep it; on a full disk it is lost, and the agent goes on."""
        try:
            while data:
                if self._size >= self._half:
                    self._turn()
                written = os.write(self._file, data[: self._half - self._size])
                self._size += written
                data = data[written:]
        except OSError:
            pass

    def _turn(self) -> None:
        base = self._bases[-1] + self._size
        file = os.open(self._path(base), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.close(self._file)
        self._file, self._size = file, 0
        self._bases.append(base)
        while len(self._bases) > FILES_MAX:
            os.unlink(self._path(self._bases.pop(0)))


class Keeper:
    """One life: take the lock, start, keep, clear, say how it ended."""

    def __init__(self, directory: str) -> None:
        """In this directory, `<root>/<zone>/<key>`."""
        self.directory = directory
        self.root = os.path.dirname(os.path.dirname(directory))
        self.key = os.path.basename(directory)
        self.boot = boot()
        self.me = os.getpid()
        self.wake, self._wake_end = os.pipe()
        self.stop_at = 0.0
        """When to kill what is still there; 0 as long as it may live."""
        self.asked = False
        self.pid = 0
        self.port = 0
        self.exit: int | None = None
        self.said = ""

    def listen(self) -> None:
        """From here on SIGTERM ends the tree and not this process alone."""
        for end in (self.wake, self._wake_end):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        for signal in (SIGTERM, SIGQUIT, SIGCHLD):
            _signal.signal(signal, self._heard)

    def _heard(self, signal: int, _frame: object) -> None:
        if signal == SIGTERM:
            self.asked = True
        if signal == SIGQUIT:
            self.asked, self.stop_at = True, time.monotonic()

    def take(self) -> bool:
        """Whether the directory is now ours; it says so in the file itself."""
        self.lock = os.open(f"{self.directory}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.002)
            else:
                me = f"{os.getpid()} {started_at('self')} {self.boot}\n".encode()
                os.pwrite(self.lock, me, 0)
                os.ftruncate(self.lock, len(me))
                return True
        return False

    def burned(self) -> bool:
        """Whether this key was removed before we came."""
        return os.path.exists(f"{self.root}/{BURNED}/{self.key}")

    def choose_port(self, orders: Orders) -> int:
        """The port that was asked for, or one that is free and that no other keeper has."""
        if wanted := orders.number("port"):
            return wanted
        for step in range(PORT_COUNT):
            port = PORT_FIRST + (orders.number("hint") + step) % PORT_COUNT
            reserved = f"{self.root}/{PORTS}/{port}"
            try:
                file = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                with open(reserved) as taken:
                    if taken.read() != self.key:
                        continue
            else:
                os.write(file, self.key.encode())
                os.close(file)
            probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            probe.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                os.unlink(reserved)
            else:
                return port
            finally:
                probe.close()
        raise OSError(errno.EADDRINUSE, "no free port")

    def start(self, orders: Orders) -> int:
        """Start the agent in a session of its own; the end of its output, to be read."""
        for group in orders.all("group"):
            make_group(group)
        for setting in orders.all("set"):
            path, _, value = setting.partition("=")
            put(path, value)
        output, output_end = os.pipe()
        failed, failed_end = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                self._become(orders, output_end)
            except OSError as error:
                os.write(failed_end, os.strerror(error.errno or 0).encode())
            finally:
                os._exit(127)
        os.close(output_end)
        os.close(failed_end)
        if words := os.read(failed, 1000):  # nothing when exec has closed it
            self.said = f"cannot start {orders.text('exec')}: {words.decode()}"
        os.close(failed)
        os.set_blocking(output, False)
        return output

    def _become(self, orders: Orders, output: int) -> None:
        """In the child: everything that must be so before the agent's first instruction."""
        prctl(SET_PDEATHSIG, SIGKILL)
        if os.getppid() != self.me:  # it died before that was in force
            return
        os.setsid()
        for signal in (SIGPIPE, SIGXFSZ):  # Python ignores them, and that would be inherited
            _signal.signal(signal, _signal.SIG_DFL)
        if orders.text("strict"):
            self.enter(orders, "0")
        for limit in orders.all("limit"):
            name, value = limit.split("=")
            lower_limit(int(name), int(value))
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.umask(0o077)
        os.chdir(orders.text("cwd"))
        port = str(self.port)
        command = [part.replace("$PORT", port) for part in orders.all("command")]
        env = dict(pair.split("=", 1) for pair in orders.all("env"))
        for name in orders.all("port_name"):
            env[name] = port
        os.execve(orders.text("exec"), command, env)  # noqa: S606 (this is what a keeper is for)

    def enter(self, orders: Orders, pid: str) -> None:
        """Move a process into the groups; the kernel can take 15 ms for the first."""
        for group in orders.all("group"):
            put(f"{group}/cgroup.procs", pid)

    def save(self, orders: Orders, *, flush: bool) -> None:
        """What there is to know of this life, for whoever adopts it or asks how it ended."""
        ended = "null" if self.exit is None else self.exit
        row = (
            f'{{"start": {orders.number("start")}, "boot": "{self.boot}", "keeper": {os.getpid()},'
            f' "pid": {self.pid}, "port": {self.port}, "exit": {ended},'
            f' "stopped": {"true" if self.asked else "false"}, "said": "{plain(self.said)}"}}\n'
        )
        try:
            write_whole(f"{self.directory}/{STATE}", row.encode(), flush=flush)
        except OSError:  # a full disk, or a directory that is being removed
            return

    def keep(self, orders: Orders, output: int) -> None:
        """Stand by until nothing of the tree is left."""
        log = Log(self.directory, orders.number("log_bytes"))
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(output, select.POLLIN)
        while self.reap():
            if (self.asked or self.exit is not None) and not self.stop_at:
                # Whoever outlives the agent's own end has no grace.
                grace = orders.number("grace_ms") / 1000 if self.exit is None else 0.0
                self.stop_at = time.monotonic() + grace
                if grace:
                    spared = self.pid if orders.text("sandboxed") else 0
                    tell(SIGTERM, [p for p in descendants(os.getpid()) if p != spared])
            timeout: float | None = None
            if self.stop_at:
                left = self.stop_at - time.monotonic()
                if left <= 0:
                    self.kill(orders)
                timeout = max(left * 1000, 2.0)
            for file, _ in poll.poll(timeout):
                if file == self.wake:
                    os.read(self.wake, 512)
                elif not copy(output, log, 4):
                    poll.unregister(output)
        copy(output, log, DRAIN_CHUNKS)

    def reap(self) -> bool:
        """Collect who has ended; whether anybody is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                if pid == self.pid:
                    self.exit = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def kill(self, orders: Orders) -> None:
        """Kill everybody; orphans come to us, so again until none is left."""
        for group in orders.all("group"):
            put(f"{group}/cgroup.kill", "1")
        for signal in (SIGSTOP, SIGKILL):  # who is stopped forks no more
            tell(signal, descendants(os.getpid()))


def make_group(path: str) -> None:
    """A control group for the tree; where that is not allowed the other means must do."""
    try:
        os.mkdir(path)
    except OSError:
        return


def put(path: str, value: str) -> None:
    """Write to a file of the kernel that may not be there."""
    try:
        file = os.open(path, os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(file, value.encode())
    except OSError:
        pass
    finally:
        os.close(file)


def lower_limit(name: int, value: int) -> None:
    """Both limits down to this value; never up."""
    hard = resource.getrlimit(name)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(name, (value, value))


def tell(signal: int, pids: list[int]) -> None:
    """Send a signal to those who are still there."""
    for pid in pids:
        try:
            os.kill(pid, signal)
        except ProcessLookupError:
            continue


def copy(output: int, log: Log, chunks: int) -> bool:
    """Move what was printed to the log; whether more may come."""
    for _ in range(chunks):
        try:
            data = os.read(output, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        log.write(data)
    return True


def close_what_was_inherited() -> None:
    """Of the plane's files none is ours but the three that were given."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > LAST_GIVEN:
            try:
                os.close(int(name))
            except OSError:
                continue


def answer(text: str) -> None:
    """Tell the provider that waits at the other end, if it still does, and let go of it."""
    try:
        os.write(1, text.encode())
    except OSError:  # it is dead; whoever comes after it reads the state
        return
    finally:
        give(1, os.devnull, os.O_WRONLY)


def told() -> str:
    """The directory to keep, as soon as somebody says so; nothing if nobody ever will."""
    words = b""
    while part := os.read(0, CHUNK):
        words += part
    return os.fsdecode(words)


def give(file: int, path: str, flags: int) -> None:
    """Have this file under the number of one of the three that were given."""
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, file)
    os.close(opened)


def main() -> int:
    """Keep a directory's runtime from its start to its end."""
    close_what_was_inherited()
    os.chdir("/")
    prctl(SET_SUBREAPER, 1)
    prctl(SET_NO_NEW_PRIVILEGES, 1)
    directory = told()
    if not directory:
        return UNTOLD
    try:
        give(0, os.devnull, os.O_RDONLY)
        give(2, f"{directory}/{ERRORS}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        keeper = Keeper(directory)
        keeper.listen()
        if not keeper.take():
            return HELD
        if keeper.burned():
            return TOMBSTONE
        with open(f"{directory}/{ORDERS}", "rb") as file:
            orders = Orders(file.read())
    except FileNotFoundError:  # removed while we were starting
        return UNREADABLE
    keeper.port = keeper.choose_port(orders)
    output = keeper.start(orders)
    keeper.save(orders, flush=False)  # a machine that stops ends the agent too
    answer(f"{keeper.port}\n")
    if not orders.text("strict"):  # no bound was asked for, so nothing need wait for it
        keeper.enter(orders, str(keeper.pid))
    keeper.keep(orders, output)
    # Who asked for the end is about to delete this, or to write it anew.
    keeper.save(orders, flush=not keeper.asked)
    for group in orders.all("group"):
        try:
            os.rmdir(group)
        except OSError:
            continue
    return 0
