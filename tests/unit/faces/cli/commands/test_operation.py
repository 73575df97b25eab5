"""The operator's verbs and the waiting, on a real server with operations that stick."""

import json

from tenure.core.operation import OperationState
from tenure.faces.cli import progress
from tenure.faces.cli.commands import operation
from tenure.faces.http.server import Listen, serving
from tests.unit.support.api_client import api_test


@api_test
async def test_a_stuck_operation_ends_a_wait_with_six_and_what_can_be_done(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        name = await face.accept("sticks")
        code, out, err = await tenure("operation", "watch", name)
        assert (code, out) == (6, "")
        assert "! charge" in err, "it is stuck, or was not done in time: as it was heard first"
        for verb in ("retry", "mark-absent", "adopt", "abandon"):
            assert f"tenure operation {verb} {name}" in err
        code, out, err = await tenure("operation", "show", name)
        assert (code, "!  charge    stuck" in out) == (0, True)
        code, out, _ = await tenure("operation", "retry", name, "--no-wait", "-o", "name")
        assert (code, out) == (0, f"{name}\n")
        await face.until(name, "STUCK")
        code, out, err = await tenure("operation", "adopt", name, "charge", "--result", "[1]")
        assert (code, out) == (0, "")
        assert "has succeeded" in err
        assert (await tenure("operation", "retry", name))[0] == 1


@api_test
async def test_what_holds_nothing_is_done_again_or_given_up(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        name = await face.accept("sticks")
        await face.until(name, "STUCK")
        code, _, _ = await tenure("operation", "mark-absent", name, "charge", "--timeout", "5")
        assert code in {1, 6}, "it is tried again, and sticks again or is undone"
        name = await face.accept("sticks")
        await face.until(name, "STUCK")
        code, out, err = await tenure("operation", "abandon", name)
        assert (code, "add --yes" in err) == (2, True), "nobody can be asked"
        code, out, _ = await tenure("operation", "abandon", name, "--yes", "-o", "json")
        assert (code, json.loads(out)["state"]) == (0, "ABANDONED")
        assert (await tenure("operation", "watch", name))[0] == 1


@api_test
async def test_a_cancel_ends_with_zero_once_it_is_undone(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        name = await face.accept("waits")
        await face.until(name, "WAITING")
        code, out, err = await tenure("operation", "cancel", name)
        assert (code, out) == (0, "")
        assert "↺ identity undone" in err
        assert "waits was undone" in err


@api_test
async def test_without_a_stream_it_looks_again_and_again(face, typing, monkeypatch):
    monkeypatch.setattr(progress, "_stream", lambda *_: False)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        name = await face.accept("make")
        code, _, err = await tenure("operation", "watch", name)
        assert code == 0
        assert [line.strip() for line in err.splitlines()[:2]] == ["✓ identity", "✓ access"]
        name = await face.accept("waits")
        code, _, err = await tenure("operation", "watch", name, "--timeout", "0.3")
        assert (code, "is WAITING after 0.3 s" in err) == (5, True)


@api_test
async def test_every_page_of_a_list_is_read_and_the_last_are_shown(face, typing, monkeypatch):
    monkeypatch.setattr("tenure.faces.cli.client.PAGE", 2)
    async with serving(face.http_state, Listen(port=0)) as address:
        tenure = typing(face, address)
        names = [await face.accept("make") for _ in range(5)]
        _, out, _ = await tenure("operation", "list", "-o", "name")
        assert out.split() == sorted(names)
        _, out, _ = await tenure("operation", "list", "--last", "2", "-o", "name")
        assert out.split() == sorted(names)[-2:]
        for name in names:
            await face.until(name, "SUCCEEDED")
        code, out, _ = await tenure("operation", "list", "--open", "-o", "json")
        assert (code, out) == (0, "[]\n")


@api_test
async def test_what_is_not_there_and_what_may_not_be_asked_end_apart(face, typing):
    async with serving(face.http_state, Listen(port=0)) as address:
        assert (await typing(face, address)("operation", "show", "0" * 32))[0] == 1
        name = await face.accept("make")
        assert (await typing(face, address, "stranger")("operation", "show", name))[0] == 1
        assert (await typing(face, address, "viewer")("operation", "cancel", name))[0] == 4
        code, _, err = await typing(face, address, "viewer")("operation", "watch", "0" * 32)
        assert (code, "(not_found)" in err) == (1, True)


def test_an_operation_is_open_until_it_has_ended():
    assert set(operation.OPEN) == set(operation.STATES) - {"SUCCEEDED", "COMPENSATED", "ABANDONED"}
    assert set(operation.STATES) == set(OperationState)
