"""What a local process can be asked for, and what is refused with the field's name."""

import os
import re
from pathlib import Path

import pytest

from tenure.adapters.runtime.process import bundle, process_spec
from tenure.adapters.runtime.process.bundle import DigestCache, read_bundle
from tenure.core.errors import Invalid

GOOD = {"command": ["/bin/true"]}


def read(**more):
    return process_spec.read({**GOOD, **more}, zones=("here", "there"))


def change_text(spec_read, *, first=True):
    return process_spec.change_reason(spec_read, DigestCache(), first=first)


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"image": "x"}, "image: .* not an image"),
        ({"network": {"egress": []}}, "network: .* egress"),
        ({"colour": 1}, "colour"),
        ({"zone": "nowhere"}, "zone: .*here, there"),
        ({"zone": ["here"]}, "zone"),
        ({"protocol": "mcp"}, "protocol"),
        ({"command": []}, "command"),
        ({"command": "/bin/true"}, "command"),
        ({"command": [1]}, "command"),
        ({"command": [""]}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": ["\ud800"]}, "command"),
        ({"command": ["x" * 200_000]}, "command"),
        ({"bundle": "relative"}, "bundle"),
        ({"bundle": 1}, "bundle"),
        ({"env": []}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"env": {"A": "\ud800"}}, "env"),
        ({"env": {"a b": "x"}}, "env: 'a b' is not a name"),
        ({"env": {"A\n": "x"}}, "env"),
        ({"env": {"HOME": "/"}}, "env: 'HOME' cannot be set by a spec: the runtime sets HOME and"),
        ({"env": {"PORT": "1"}}, "env: 'PORT' tells the agent its port; `port: N`"),
        ({"env": {"TENURE_KEY": "x"}}, "env: 'TENURE_KEY'"),
        ({"digests": {"/a": 1}}, "digests"),
        ({"resources": []}, "resources"),
        ({"resources": {"gpu": 1}}, "resources: 'gpu'"),
        ({"resources": {"memory_mib": 0}}, "memory_mib"),
        ({"resources": {"memory_mib": True}}, "memory_mib"),
        ({"resources": {"memory_mib": 1.5}}, "memory_mib"),
        ({"port": 80}, "port"),
        ({"log_bytes": 1}, "log_bytes"),
    ],
)
def test_what_makes_no_sense_here_is_refused_by_name(more, names):
    with pytest.raises(Invalid, match=names):
        read(**more)


def test_a_spec_is_the_same_in_whatever_order():
    one = read(env={"A": "1", "B": "2"}, zone="there")
    two = process_spec.read(
        {"zone": "there", "env": {"B": "2", "A": "1"}, "command": ["/bin/true"]},
        zones=("here", "there"),
    )
    assert one.text == two.text
    assert one.text != read(env={"A": "1", "B": "3"}, zone="there").text


def test_a_program_is_looked_for_where_it_was_said_and_nowhere_else(tmp_path):
    (tmp_path / "tool").touch(mode=0o755)
    assert process_spec.program(read(command=["tool"]), path=str(tmp_path)) == str(
        tmp_path / "tool"
    )
    with pytest.raises(Invalid, match="sh was not found"):
        process_spec.program(read(command=["sh"]), path=str(tmp_path))
    with pytest.raises(Invalid, match="no bundle"):
        process_spec.program(read(command=["./run"]), path="")
    with pytest.raises(Invalid, match="leads out"):
        process_spec.program(read(command=["./../run"], bundle="/b"), path="")
    assert process_spec.program(read(command=["./run"], bundle="/b"), path="") == "run"


def test_a_pinned_program_is_the_one_that_was_seen(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
    path = f"{first}:{second}"
    (second / "tool").touch(mode=0o755)
    spec_read = read(command=["tool"], digests={str(second / "tool"): "sha256:0"})
    assert process_spec.pinned_program(spec_read, path=path) == str(second / "tool")
    (first / "tool").touch(mode=0o755)
    with pytest.raises(Invalid, match=f"tool is now {first / 'tool'}"):
        process_spec.pinned_program(spec_read, path=path)
    assert process_spec.pinned_program(read(command=["tool"]), path=path) == str(first / "tool")


@pytest.mark.parametrize(
    ("spec", "name", "why"),
    [
        ({"command": ["tool"]}, "tool", "command: tool was not found on the PATH of"),
        ({"command": ["/no/such"]}, "/no/such", "command: /no/such cannot be read"),
        ({"command": ["/dev/null"]}, "/dev/null", "command: /dev/null cannot be read"),
        ({"command": ["/bin/true"], "bundle": "/no"}, "/no", "bundle: /no cannot be read"),
        ({"command": ["x" * 4_000]}, "x" * 4_000, f"command: {'x' * 200}… was not found"),
    ],
)
def test_what_is_missing_says_so_in_the_place_of_its_digest(spec, name, why):
    wanted = process_spec.read(spec, zones=("here",))
    full = process_spec.digest(spec, wanted, path="/nowhere", digests=DigestCache())
    spec_read = process_spec.read(full, zones=("here",))
    assert re.match(f"missing: {why}.* in zone here", spec_read.digests[name])
    assert re.match(f"{why}.* in zone here.*so it was when", change_text(spec_read))


def test_a_program_that_is_not_in_its_bundle_is_missing(tmp_path):
    spec = {"command": ["./run"], "bundle": str(tmp_path)}
    wanted = process_spec.read(spec, zones=("here",))
    full = process_spec.digest(spec, wanted, path="", digests=DigestCache())
    said = f"command: there is no run in {tmp_path} in zone here"
    assert change_text(process_spec.read(full, zones=("here",))).startswith(said)
    (tmp_path / "run").touch()
    full = process_spec.digest(spec, wanted, path="", digests=DigestCache())
    assert change_text(process_spec.read(full, zones=("here",))) == ""


def test_digests_name_the_program_the_files_and_the_bundle(tmp_path):
    file = tmp_path / "file"
    file.write_text("one")
    (tmp_path / "bundle").mkdir()
    spec = {
        "command": ["/bin/cat", str(file), "/no/such", "/" + "x" * 5_000],
        "bundle": str(tmp_path / "bundle"),
    }
    wanted = process_spec.read(spec, zones=("here",))
    full = process_spec.digest(spec, wanted, path="", digests=DigestCache())
    spec_read = process_spec.read(full, zones=("here",))
    assert set(spec_read.digests) == {"/bin/cat", str(file), str(tmp_path / "bundle")}
    assert change_text(spec_read) == ""
    file.write_text("two")
    assert str(file) in change_text(spec_read)
    assert "delete the agent and create it" in change_text(spec_read)
    file.unlink()
    assert "No such file" in change_text(spec_read)


def test_an_argument_that_becomes_a_file_before_the_first_start_was_seen_by_nobody(tmp_path):
    late = tmp_path / "late"
    spec = {"command": ["/bin/cat", str(late)]}
    wanted = process_spec.read(spec, zones=("here",))
    full = process_spec.digest(spec, wanted, path="", digests=DigestCache())
    spec_read = process_spec.read(full, zones=("here",))
    assert change_text(spec_read) == "", "it may be for the agent to write"
    late.write_text("anything")
    assert f"command: {late} was no file when the spec was accepted" in change_text(spec_read)
    assert change_text(spec_read, first=False) == "", "the agent may have written it"
    assert change_text(wanted) == "", "nothing of it was ever pinned"


def test_a_file_that_was_changed_behind_its_time_is_seen(tmp_path):
    file = tmp_path / "file"
    file.write_text("one")
    digests = DigestCache()
    before = digests.of(str(file))
    is_now = file.stat()
    file.write_text("two")
    os.utime(file, ns=(is_now.st_atime_ns, is_now.st_mtime_ns))
    assert digests.of(str(file)) != before


def test_a_file_that_does_not_say_how_long_it_is_is_read_no_further_than_the_bound(monkeypatch):
    monkeypatch.setattr(bundle, "FILE_BYTES_MAX", 1_000)
    monkeypatch.setattr(bundle, "PIECE_BYTES", 128)
    assert Path("/proc/self/pagemap").stat().st_size == 0
    with pytest.raises(OSError, match="more than 1000 bytes"):
        DigestCache().of("/proc/self/pagemap")


def test_a_file_that_would_have_to_be_waited_for_is_not_read():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    file = os.fdopen(reading, "rb", buffering=0)
    with file, pytest.raises(OSError, match="would block"):
        list(bundle._pieces(file, 10))
    os.close(writing)


@pytest.mark.parametrize("change", ["bytes", "name", "mode", "more", "link"])
def test_a_bundle_is_its_names_its_modes_and_its_bytes(tmp_path, change):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("one")
    (tmp_path / "link").symlink_to("a")
    before = read_bundle(tmp_path)
    assert read_bundle(tmp_path) == before
    file = tmp_path / "a" / "file"
    match change:
        case "bytes":
            file.write_text("two")
        case "name":
            file.rename(tmp_path / "a" / "other")
        case "mode":
            file.chmod(0o700)
        case "more":
            (tmp_path / "empty").mkdir()
        case _:
            (tmp_path / "link").unlink()
            (tmp_path / "link").symlink_to("a/file")
    assert read_bundle(tmp_path) != before


@pytest.mark.parametrize("link", ["/etc/passwd", "../beside", "inner/../../beside"])
def test_a_bundle_does_not_lead_out_of_itself(tmp_path, link):
    (tmp_path / "b" / "inner").mkdir(parents=True)
    (tmp_path / "beside").write_text("x")
    (tmp_path / "b" / "link").symlink_to(link)
    with pytest.raises(Invalid, match="leads out"):
        read_bundle(tmp_path / "b")


def test_a_bundle_is_bounded_and_plain(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="neither a file nor a directory"):
        read_bundle(tmp_path)
    (tmp_path / "pipe").unlink()
    monkeypatch.setattr(bundle, "BYTES_MAX", 1_000)
    monkeypatch.setattr(bundle, "ENTRIES_MAX", 10)
    (tmp_path / "half").write_bytes(bytes(600))
    (tmp_path / "huge").write_bytes(bytes(600))
    with pytest.raises(Invalid, match="at most"):
        read_bundle(tmp_path)
    (tmp_path / "huge").unlink()
    read_bundle(tmp_path)
    for number in range(10):
        (tmp_path / str(number)).touch()
    with pytest.raises(Invalid, match="entries"):
        read_bundle(tmp_path)
