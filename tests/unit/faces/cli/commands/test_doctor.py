"""The doctor finds what is wrong, says what to do, and changes nothing."""

import json
import os
import socket
import sys

import pytest

from tenure.faces.cli import main as cli
from tenure.faces.cli.client import Client
from tenure.faces.cli.commands import doctor
from tenure.faces.cli.where import ServerLocation
from tenure.home import lock_holder
from tenure.home.epoch_file import EpochFile
from tenure.ports.epoch import Memo
from tenure.sqlite.location import Lock
from tenure.testing.servers import lasting_port


def results(findings):
    return {one.check: one.result for one in findings}


def test_a_home_that_is_open_to_others_fails_with_the_cure(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "token").write_text("t")
    (home / "token").chmod(0o644)
    found = {one.check: one for one in doctor.home(home)}
    assert (found["home"].result, found["token file"].result) == ("ok", "fail")
    assert found["token file"].advice == f"chmod 600 {home / 'token'}"
    home.chmod(0o755)
    assert results(doctor.home(home))["home"] == "fail"


def test_a_home_that_is_not_there_yet_is_no_failure(tmp_path):
    found = results(doctor.home(tmp_path / "a" / "b"))
    assert found == {"home": "warn", "disk": "ok"}
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_a_file_fails(tmp_path):
    (tmp_path / "home").write_text("")
    assert results(doctor.home(tmp_path / "home"))["home"] == "fail"


def test_an_epoch_that_is_odd_held_or_half_restored_is_told(tmp_path):
    assert results(doctor.epoch(tmp_path)) == {}
    file = EpochFile(tmp_path)
    file.write(Memo(3))
    assert results(doctor.epoch(tmp_path)) == {"epoch file": "ok", "epoch": "ok"}
    file.write(Memo(3, "restored"))
    assert results(doctor.epoch(tmp_path)) == {"epoch file": "ok", "held": "warn"}
    file.write(Memo(3, "restored", restoring="backup"))
    assert results(doctor.epoch(tmp_path)) == {"epoch file": "ok", "epoch": "fail"}
    file.path.write_text("{")
    assert results(doctor.epoch(tmp_path)) == {"epoch": "fail"}


def test_who_serves_the_providers_is_named_and_fails_if_it_is_stopped(tmp_path, monkeypatch):
    assert results(doctor.providers(tmp_path)) == {}
    lock = Lock.take(tmp_path / "providers")
    (found,) = doctor.providers(tmp_path)
    assert (found.result, found.found) == ("ok", f"served by process {os.getpid()}")
    monkeypatch.setattr(lock_holder, "stopped_mark", lambda _: 1)
    (found,) = doctor.providers(tmp_path)
    assert (found.result, f"kill -9 {os.getpid()}:" in found.advice) == ("fail", True)
    lock.release()
    assert results(doctor.providers(tmp_path)) == {}


def test_a_full_disk_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "ROOM_FAIL_MIB", 1 << 40)
    assert results(doctor.home(tmp_path))["disk"] == "fail"


def test_a_library_that_the_store_refuses_fails_here_too(monkeypatch):
    from tenure.core.errors import StoreUnsafe
    from tenure.sqlite.durable_file import check_library

    assert results(doctor.sqlite()) == {"sqlite": "ok"}
    check_library(".".join(map(str, doctor.SQLITE)))
    before = (*doctor.SQLITE[:2], doctor.SQLITE[2] - 1)
    with pytest.raises(StoreUnsafe):
        check_library(".".join(map(str, before)))
    monkeypatch.setattr(doctor, "SQLITE", (99, 0, 0))
    assert results(doctor.sqlite()) == {"sqlite": "fail"}


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = [*doctor.port(str(taken.getsockname()[1]))]
    assert found[0].result == "warn"
    assert "tenure up --port" in found[0].advice


def test_the_port_is_the_one_that_a_start_would_have(tmp_path, monkeypatch):
    def check():
        return {one.check: one for one in doctor.server(ServerLocation(home=str(tmp_path)))}["port"]

    number = lasting_port()
    monkeypatch.setenv("TENURE_PORT", str(number))
    assert (check().result, check().found) == ("ok", f"{number} is free")
    for odd in ("99999", "web"):
        monkeypatch.setenv("TENURE_PORT", odd)
        assert (check().result, odd in check().found) == ("fail", True)


def test_of_a_server_that_is_dead_it_does_not_advise_itself(tmp_path):
    (tmp_path / "address").write_text("http://127.0.0.1:1\n")
    (tmp_path / "token").write_text("t\n")
    found = {one.check: one for one in doctor.server(ServerLocation(home=str(tmp_path)))}
    assert (found["server"].result, found["server"].advice) == ("warn", "start it: tenure up")


@pytest.mark.parametrize(
    ("ready", "found"),
    [
        ({"status": "ready"}, {"server": "ok", "token": "ok"}),
        (
            {"status": "ready", "engine": "Temporal cannot be reached"},
            {"server": "ok", "its engine": "warn", "token": "ok"},
        ),
        ([], {"server": "ok", "token": "ok"}),
    ],
)
def test_a_server_whose_engine_is_away_is_told(monkeypatch, ready, found):
    monkeypatch.setattr(Client, "get", lambda *_: ready)
    asked = ServerLocation(address="http://127.0.0.1:1", token="t")
    assert results(doctor.server(asked)) == found


def test_no_server_is_a_warning_and_no_token_a_failure(tmp_path):
    assert results(doctor.server(ServerLocation(home=str(tmp_path))))["server"] == "warn"
    asked = ServerLocation(home=str(tmp_path), address="http://127.0.0.1:1")
    assert results(doctor.server(asked)) == {"token": "fail"}


def found_of(**scale):
    return {one.check: (one.result, one.found) for one in doctor.scaled_out(scale)}


def test_servers_are_looked_at_only_if_they_are_named():
    assert found_of() == {}
    said = "embedded: in the plane's own processes"
    assert found_of(engine="embedded") == {"engine": ("ok", said)}


def test_a_server_that_is_not_there_fails_with_a_sentence_for_each():
    nowhere = "127.0.0.1:1"
    found = found_of(store=f"postgresql://someone:hush@{nowhere}/tenure", bus=f"nats://{nowhere}")
    assert {name: result for name, (result, _) in found.items()} == {"store": "fail", "bus": "fail"}
    assert "cannot be reached" in found["store"][1]
    assert "hush" not in found["store"][1]
    assert "NATS cannot be used" in found["bus"][1]


def test_an_engine_that_is_not_there_fails_with_a_sentence():
    store, nowhere = "postgresql://127.0.0.1:1/tenure", "127.0.0.1:1"
    found = found_of(store=store, engine="temporal", temporal_address=nowhere)
    assert found["engine"][0] == "fail"
    assert f"Temporal at {nowhere} cannot be reached" in found["engine"][1]


def test_what_cannot_go_together_fails_with_a_sentence(tmp_path):
    assert "named like postgresql://" in found_of(store="mysql://db/tenure")["store"][1]
    assert "a shared store: --store" in found_of(engine="temporal")["engine"][1]
    named = {"store": "postgresql://127.0.0.1:1/x", "temporal_tls_certificate": "c"}
    found = found_of(engine="temporal", **named)
    assert "come together" in found["engine"][1]


def test_the_exit_code_tells_whether_anything_failed(tmp_path, capsys):
    assert cli.main(["doctor", "--home", str(tmp_path / "new"), "-o", "json"]) == 0
    assert {one["check"] for one in json.loads(capsys.readouterr().out)} >= {"python", "disk"}
    tmp_path.chmod(0o755)
    assert cli.main(["doctor", "--home", str(tmp_path)]) == 1
    assert "chmod 700" in capsys.readouterr().out


def test_at_a_terminal_what_to_do_stands_below_what_was_found(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    tmp_path.chmod(0o755)
    assert cli.main(["doctor", "--home", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "ADVICE" not in out
    (below,) = (line for line in out.splitlines() if "chmod 700" in line)
    assert below.startswith(" " * 10)
    assert cli.main(["doctor", "--home", str(tmp_path), "-o", "wide"]) == 1
    assert "ADVICE" in capsys.readouterr().out


def test_another_interpreter_or_system_is_told(monkeypatch):
    assert results(doctor.python()) == {"python": "ok"}
    monkeypatch.setattr(doctor, "PYTHON", (99, 0))
    monkeypatch.setattr(sys, "platform", "plan9")
    assert results(doctor.python()) == {"python": "fail", "system": "warn"}


def test_a_store_without_its_library_fails(monkeypatch):
    monkeypatch.setitem(sys.modules, "apsw", None)
    (found,) = doctor.sqlite()
    assert (found.result, found.advice) == ("fail", "pip install apsw")


def test_a_file_of_somebody_else_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    assert doctor.private("home", tmp_path, 0o077).result == "warn"


@pytest.mark.parametrize(
    ("program", "result"),
    [("", "warn"), ("#!/bin/sh\nexit 0", "ok"), ("#!/bin/sh\nexit 1", "warn"), ("#!/no", "warn")],
)
def test_a_sandbox_is_tried_and_not_only_looked_for(tmp_path, monkeypatch, program, result):
    if program:
        (tmp_path / "bwrap").write_text(program)
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert results(doctor.bubblewrap()) == {"bubblewrap": result}
