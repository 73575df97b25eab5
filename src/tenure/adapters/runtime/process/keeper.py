"""The keeper: one small process for each runtime.  It outlives the plane; no agent outlives it.

It holds the lock of its directory while it lives and starts the agent.  As a subreaper it is the
parent of every orphan of the agent.  It bounds the log, records the exit code, and on SIGTERM ends
the whole process tree (on SIGQUIT without the grace period).  It reads the file `orders`, which the
provider has written, and starts nothing if the key's burn mark exists.

It imports only modules of the standard library that load fast: `signal`, `socket`, `json` and
`ctypes` would treble the start.  Nothing of Tenure is imported here.

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

LOCK, LAUNCH_FILE, STATE, WORK, BUNDLE = "lock", "orders", "state.json", "work", "bundle"
ERRORS = "keeper.err"
LOG = "log."
"""A log file is named by the offset of its first byte in the agent's whole output."""
FILES_MAX = 2
PORTS = "ports"
BURNED = "burned"
PORT_FIRST, PORT_COUNT = 20_000, 12_768
"""Below the kernel's range of ports for outgoing connections."""
ALREADY_LOCKED, BURNED_KEY, UNREADABLE, NO_DIRECTORY = 3, 4, 5, 6
"""Exit codes of a keeper that has started no agent."""
LOCK_TRIES = 60
"""A process that tests the lock has it for an instant: retry, 2 ms apart."""
LAST_INHERITED_FILE = 2
"""The keeper has three files: standard input, the pipe for its answer, and errors."""
CHUNK = 65_536
DRAIN_CHUNKS = 64
"""Chunks of output that are still read after the agent's end."""
SET_PDEATHSIG, SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 1, 36, 38
SIGQUIT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGSTOP, SIGXFSZ = 3, 9, 13, 15, 17, 19, 25


class LaunchConfig:
    """The content of the file `orders`: a list of texts for each name."""

    def __init__(self, raw: bytes) -> None:
        """Parse `name NUL value NUL name NUL value NUL`."""
        parts = raw.split(b"\0")
        self._lists: dict[str, list[str]] = {}
        for name, value in zip(parts[0::2], parts[1::2], strict=False):
            self._lists.setdefault(name.decode(), []).append(os.fsdecode(value))

    def all(self, name: str) -> list[str]:
        """Every value of this name, in order."""
        return self._lists.get(name, [])

    def text(self, name: str) -> str:
        """The first value, or ""."""
        return self.all(name)[0] if self.all(name) else ""

    def number(self, name: str) -> int:
        """The first value as a number, or 0."""
        return int(self.text(name) or 0)


def encode(config: list[tuple[str, str]]) -> bytes:
    """Encode the launch file; the provider has checked that no value has a NUL."""
    return b"".join(os.fsencode(part) + b"\0" for pair in config for part in pair)


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; `_ctypes` loads faster than `ctypes`."""
    try:
        from _ctypes import call_function, dlopen, dlsym  # noqa: PLC0415 (see the fallback)
    except ImportError:
        import ctypes  # noqa: PLC0415 (three times as slow, and always available)

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    else:
        handle = dlopen(None, 0)  # type: ignore[arg-type]
        call_function(dlsym(handle, "prctl"), (option, value, 0, 0, 0))


def started_at(pid: int | str) -> int:
    """Start time of a process in ticks since boot; with the pid it identifies the process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rsplit(b")", 1)[1].split()[19])


def boot() -> str:
    """The boot id of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def children(pid: int) -> list[int]:
    """The direct children of all threads of this process; none if it has ended."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def descendants(pid: int) -> list[int]:
    """All descendants of this process, parents first."""
    found = children(pid)
    for one in found:  # the list grows during the loop
        found += [child for child in children(one) if child not in found]
    return found


def write_whole(path: str, data: bytes, *, flush: bool = True) -> None:
    """Replace a file atomically: after a crash it has the old or the new content.

    Without `flush` this holds for a crash of the process, not for one of the machine.
    """
    with open(f"{path}.new", "wb") as file:
        file.write(data)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def plain(text: str) -> str:
    """The text with characters replaced that JSON would have to escape."""
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "?" for c in text)


class Log:
    """The agent's output in at most two files, each half of the bound; older output is deleted."""

    def __init__(self, directory: str, bytes_max: int) -> None:
        """Continue the log of an earlier keeper of this directory."""
        self._directory = directory
        self._half = max(bytes_max // 2, 1)
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
        """Append the data; on a full disk it is lost, and the agent goes on."""
        try:
            while data:
                if self._size >= self._half:
                    self._rotate()
                written = os.write(self._file, data[: self._half - self._size])
                self._size += written
                data = data[written:]
        except OSError:
            pass

    def _rotate(self) -> None:
        base = self._bases[-1] + self._size
        file = os.open(self._path(base), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.close(self._file)
        self._file, self._size = file, 0
        self._bases.append(base)
        while len(self._bases) > FILES_MAX:
            os.unlink(self._path(self._bases.pop(0)))


class Keeper:
    """One run of an agent: lock, start, supervise, end the process tree, record the exit code."""

    def __init__(self, directory: str) -> None:
        """`directory` is `<root>/<zone>/<key>`."""
        self.directory = directory
        self.root = os.path.dirname(os.path.dirname(directory))
        self.key = os.path.basename(directory)
        self.boot = boot()
        self.me = os.getpid()
        self.wake, self._wake_end = os.pipe()
        self.stop_at = 0.0
        """Time at which the remaining processes are killed; 0 while they may run."""
        self.stop_requested = False
        self.pid = 0
        self.port = 0
        self.exit: int | None = None
        self.message = ""

    def listen(self) -> None:
        """Handle signals: from here on SIGTERM ends the whole process tree."""
        for end in (self.wake, self._wake_end):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        for signal in (SIGTERM, SIGQUIT, SIGCHLD):
            _signal.signal(signal, self._on_signal)

    def _on_signal(self, signal: int, _frame: object) -> None:
        if signal == SIGTERM:
            self.stop_requested = True
        if signal == SIGQUIT:
            self.stop_requested, self.stop_at = True, time.monotonic()

    def take(self) -> bool:
        """Lock the directory and write this process's identity into the file; False if locked."""
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

    def is_burned(self) -> bool:
        """Whether the key has a burn mark."""
        return os.path.exists(f"{self.root}/{BURNED}/{self.key}")

    def choose_port(self, config: LaunchConfig) -> int:
        """The port of the spec, or a free one that no other keeper has reserved."""
        if requested_port := config.number("port"):
            return requested_port
        for step in range(PORT_COUNT):
            port = PORT_FIRST + (config.number("hint") + step) % PORT_COUNT
            reserved = f"{self.root}/{PORTS}/{port}"
            try:
                file = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                with open(reserved) as owner_file:
                    if owner_file.read() != self.key:
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

    def start(self, config: LaunchConfig) -> int:
        """Start the agent in a session of its own; returns the pipe with its output."""
        for group in config.all("group"):
            make_group(group)
        for setting in config.all("set"):
            path, _, value = setting.partition("=")
            write_kernel_file(path, value)
        output, output_end = os.pipe()
        failed, failed_end = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                self._become(config, output_end)
            except OSError as error:
                os.write(failed_end, os.strerror(error.errno or 0).encode())
            finally:
                os._exit(127)
        os.close(output_end)
        os.close(failed_end)
        if words := os.read(failed, 1000):  # empty if exec has closed it
            self.message = f"cannot start {config.text('exec')}: {words.decode()}"
        os.close(failed)
        os.set_blocking(output, False)
        return output

    def _become(self, config: LaunchConfig, output: int) -> None:
        """In the child process: set everything up and execute the agent."""
        prctl(SET_PDEATHSIG, SIGKILL)
        if os.getppid() != self.me:  # the keeper died before PDEATHSIG was set
            return
        os.setsid()
        for signal in (SIGPIPE, SIGXFSZ):  # Python ignores them, and the agent would inherit that
            _signal.signal(signal, _signal.SIG_DFL)
        if config.text("strict"):
            self.enter(config, "0")
        for limit in config.all("limit"):
            name, value = limit.split("=")
            lower_limit(int(name), int(value))
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.umask(0o077)
        os.chdir(config.text("cwd"))
        port = str(self.port)
        command = [part.replace("$PORT", port) for part in config.all("command")]
        env = dict(pair.split("=", 1) for pair in config.all("env"))
        for name in config.all("port_name"):
            env[name] = port
        os.execve(config.text("exec"), command, env)  # noqa: S606 (a keeper's purpose)

    def enter(self, config: LaunchConfig, pid: str) -> None:
        """Move a process into the control groups; the kernel can take 15 ms for the first one."""
        for group in config.all("group"):
            write_kernel_file(f"{group}/cgroup.procs", pid)

    def save(self, config: LaunchConfig, *, flush: bool) -> None:
        """Write the state file, from which the provider reads port, pid and exit code."""
        ended = "null" if self.exit is None else self.exit
        row = (
            f'{{"start": {config.number("start")}, "boot": "{self.boot}", "keeper": {os.getpid()},'
            f' "pid": {self.pid}, "port": {self.port}, "exit": {ended},'
            f' "stopped": {"true" if self.stop_requested else "false"},'
            f' "said": "{plain(self.message)}"}}\n'
        )
        try:
            write_whole(f"{self.directory}/{STATE}", row.encode(), flush=flush)
        except OSError:  # a full disk, or a directory that is being removed
            return

    def keep(self, config: LaunchConfig, output: int) -> None:
        """Supervise until the last process of the tree has ended."""
        log = Log(self.directory, config.number("log_bytes"))
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(output, select.POLLIN)
        while self.reap():
            if (self.stop_requested or self.exit is not None) and not self.stop_at:
                # Processes that outlive the agent itself get no grace period.
                grace = config.number("grace_ms") / 1000 if self.exit is None else 0.0
                self.stop_at = time.monotonic() + grace
                if grace:
                    sandbox_pid = self.pid if config.text("sandboxed") else 0
                    send_signal(SIGTERM, [p for p in descendants(os.getpid()) if p != sandbox_pid])
            timeout: float | None = None
            if self.stop_at:
                left = self.stop_at - time.monotonic()
                if left <= 0:
                    self.kill(config)
                timeout = max(left * 1000, 2.0)
            for file, _ in poll.poll(timeout):
                if file == self.wake:
                    os.read(self.wake, 512)
                elif not copy(output, log, 4):
                    poll.unregister(output)
        copy(output, log, DRAIN_CHUNKS)

    def reap(self) -> bool:
        """Reap ended children; whether any process is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                if pid == self.pid:
                    self.exit = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            return False

    def kill(self, config: LaunchConfig) -> None:
        """Kill all descendants; `keep` repeats it until no orphan is left."""
        for group in config.all("group"):
            write_kernel_file(f"{group}/cgroup.kill", "1")
        for signal in (SIGSTOP, SIGKILL):  # a stopped process cannot fork
            send_signal(signal, descendants(os.getpid()))


def make_group(path: str) -> None:
    """Make a control group if that is permitted."""
    try:
        os.mkdir(path)
    except OSError:
        return


def write_kernel_file(path: str, value: str) -> None:
    """Write to a kernel file that may not exist."""
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
    """Lower the soft and the hard limit to this value; never raise them."""
    hard = resource.getrlimit(name)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(name, (value, value))


def send_signal(signal: int, pids: list[int]) -> None:
    """Send a signal to the processes that still exist."""
    for pid in pids:
        try:
            os.kill(pid, signal)
        except ProcessLookupError:
            continue


def copy(output: int, log: Log, chunks: int) -> bool:
    """Copy output to the log; whether more may come."""
    for _ in range(chunks):
        try:
            data = os.read(output, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        log.write(data)
    return True


def close_inherited_files() -> None:
    """Close all inherited files except the first three."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > LAST_INHERITED_FILE:
            try:
                os.close(int(name))
            except OSError:
                continue


def answer(text: str) -> None:
    """Write the answer to the provider's pipe and close it."""
    try:
        os.write(1, text.encode())
    except OSError:  # the plane has ended; the next one reads the state file
        return
    finally:
        redirect(1, os.devnull, os.O_WRONLY)


def read_directory() -> str:
    """Read the keeper's directory from standard input; "" if the plane closes it unused."""
    words = b""
    while part := os.read(0, CHUNK):
        words += part
    return os.fsdecode(words)


def redirect(file: int, path: str, flags: int) -> None:
    """Open this file under the number of a standard file."""
    opened_file = os.open(path, flags, 0o600)
    os.dup2(opened_file, file)
    os.close(opened_file)


def main() -> int:
    """Run one runtime from its start to its end."""
    close_inherited_files()
    os.chdir("/")
    prctl(SET_SUBREAPER, 1)
    prctl(SET_NO_NEW_PRIVILEGES, 1)
    directory = read_directory()
    if not directory:
        return NO_DIRECTORY
    try:
        redirect(0, os.devnull, os.O_RDONLY)
        redirect(2, f"{directory}/{ERRORS}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        keeper = Keeper(directory)
        keeper.listen()
        if not keeper.take():
            return ALREADY_LOCKED
        if keeper.is_burned():
            return BURNED_KEY
        with open(f"{directory}/{LAUNCH_FILE}", "rb") as file:
            config = LaunchConfig(file.read())
    except FileNotFoundError:  # removed while this keeper started
        return UNREADABLE
    keeper.port = keeper.choose_port(config)
    output = keeper.start(config)
    keeper.save(config, flush=False)  # a crash of the machine would end the agent too
    answer(f"{keeper.port}\n")
    if not config.text("strict"):  # the spec has no limit, so the start need not wait for it
        keeper.enter(config, str(keeper.pid))
    keeper.keep(config, output)
    # After a requested stop the provider deletes or rewrites this file at once.
    keeper.save(config, flush=not keeper.stop_requested)
    for group in config.all("group"):
        try:
            os.rmdir(group)
        except OSError:
            continue
    return 0
