"""Specs that would take what is not theirs: the plane's own files, another agent's port, a thread.

Goal: each is refused with a sentence before anything is started, or contained where it runs.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tenure.core.errors import Invalid, Rejected
from tenure.testing.contracts.provider import key
from tests.real.support import runtimes
from tests.real.support.runtimes import agent, open_runtime, run, run_to_end, start_and_wait

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "token").write_text("canary-31f")
    with runtimes.end_all_after(tmp_path):
        yield home


@pytest.fixture
def runtime(home):
    with open_runtime(home / "runtimes", hidden=(home,)) as runtime:
        yield runtime


def assert_rejected(runtime, spec, match):
    with pytest.raises(Invalid, match=match):
        run(runtime.digest(spec))


def not_started(runtime, spec, match):
    """What is said in place of its digest is what it is refused with."""
    pinned = run(runtime.digest(spec))
    with pytest.raises(Rejected, match=match):
        run(runtime.ensure(key(), pinned))


def test_a_device_or_a_pipe_is_never_read(runtime, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe")):
        pinned = run(runtime.digest({"command": [path]}))
        assert "no plain file" in pinned["digests"][path]
    not_started(runtime, {"command": ["/dev/zero"]}, "no plain file")


def test_a_file_without_end_is_never_read(runtime, tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(400 << 30)
    not_started(runtime, {"command": ["/bin/cat", str(tmp_path / "sparse")]}, "more than")


def test_what_turns_up_after_it_was_accepted_is_not_started_unseen(runtime, tmp_path):
    late = tmp_path / "late"
    pinned = run(runtime.digest({"command": [str(late)]}))
    late.write_text("#!/bin/sh\nsleep 600\n")
    late.chmod(0o755)
    with pytest.raises(Rejected, match="so it was when the spec was accepted"):
        run(runtime.ensure(key(), pinned))


def test_an_argument_that_turns_up_before_the_first_start_is_not_read_unseen(runtime, tmp_path):
    late = tmp_path / "late"
    pinned = run(runtime.digest({"command": ["/bin/sh", str(late)]}))
    late.write_text("sleep 600\n")
    with pytest.raises(Rejected, match="was no file when the spec was accepted"):
        run(runtime.ensure(key(), pinned))


def test_what_an_agent_was_told_to_write_does_not_stand_in_its_way_later(runtime, tmp_path):
    written = tmp_path / "written"
    pinned = run(runtime.digest({**agent(), "command": [*agent()["command"], str(written)]}))
    start_and_wait(runtime, pinned)
    run(runtime.remove(key()))
    written.write_text("by the agent")
    later = key()._replace(text=f"{key().text}2", generation=2)
    start_and_wait(runtime, pinned, later)


def test_a_program_that_the_search_path_leads_to_only_now_is_not_started_unseen(home, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
    (second / "tool").symlink_to("/bin/sleep")
    with open_runtime(home / "runtimes", path=f"{first}:{second}") as runtime:
        pinned = run(runtime.digest({"command": ["tool", "600"]}))
        (first / "tool").symlink_to("/bin/sleep")
        with pytest.raises(Rejected, match=f"tool is now {first / 'tool'},"):
            run(runtime.ensure(key(), pinned))


@pytest.mark.parametrize("via_link", [False, True])
def test_the_planes_own_files_are_not_given_to_an_agent_that_names_them(
    runtime, home, tmp_path, via_link
):
    token = home / "token"
    if via_link:
        token = tmp_path / "link"
        token.symlink_to(home / "token")
    assert_rejected(runtime, {"command": ["/bin/cat", str(token)]}, "control plane's own directory")


def test_a_bundle_neither_holds_the_planes_directory_nor_lies_in_it(runtime, home, tmp_path):
    inside = home / "runtimes" / "local-a"
    for bundle in (tmp_path, home, inside):
        assert_rejected(
            runtime, {"command": ["/bin/true"], "bundle": str(bundle)}, "contains or is inside"
        )


def test_a_bundle_that_is_nested_without_end_is_refused(runtime, tmp_path):
    deep = tmp_path / "deep"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        said = str(run(runtime.digest({"command": ["/bin/true"], "bundle": str(deep)})))
    except Invalid as error:
        said = str(error)
    assert "nested" in said or "cannot be read" in said
    subprocess.run(["rm", "-rf", str(deep)], check=True)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "GLIBC_TUNABLES"])
def test_nothing_is_loaded_into_the_sandbox_itself(runtime, name):
    with pytest.raises(Invalid, match=name):
        run(runtime.digest({"command": ["/bin/true"], "env": {name: "x"}}))


def test_a_port_that_another_agent_was_given_is_refused(runtime):
    address = str(start_and_wait(runtime, agent())["address"])
    port = int(address.rpartition(":")[2])
    other = key("other")
    with pytest.raises(Rejected, match="another agent's"):
        run(runtime.ensure(other, agent(port=port)))
    run(runtime.remove(key()))
    third = key("third")
    assert str(start_and_wait(runtime, agent(port=port), third)["address"]) == address


def test_who_is_refused_keeps_no_port(runtime, home, tmp_path):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    pinned = run(runtime.digest(agent(port=20_001, bundle=str(bundle))))
    (bundle / "changed").touch()
    missing = run(runtime.digest(agent("missing", port=20_001)))
    for one, spec in ((key(), pinned), (key("other"), missing)):
        with pytest.raises(Rejected, match="accepted"):
            run(runtime.ensure(one, spec))
    assert list((home / "runtimes" / "ports").iterdir()) == []


def test_what_an_agent_nests_without_end_is_deleted_with_it(runtime, home):
    nest = "import os\nfor _ in range(3000):\n os.mkdir('d')\n os.chdir('d')\n"
    run_to_end(runtime, {"command": [sys.executable, "-I", "-S", "-c", nest]})
    run(runtime.remove(key()))
    assert not (home / "runtimes" / "local-a" / key().text).exists()
    assert list((home / "runtimes" / "trash").iterdir()) == []


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not here")
def test_root_in_the_sandbox_cannot_unmount_what_hides(home):
    with open_runtime(home / "runtimes", hidden=(home,), sandbox="require") as runtime:
        words = f"umount -l {home}; cat {home}/token; grep CapEff /proc/self/status"
        run_to_end(runtime, {"command": ["/bin/sh", "-c", words]})
        said = run(runtime.logs(key()))
    assert "canary-31f" not in said
    assert "CapEff:\t0000000000000000" in said
