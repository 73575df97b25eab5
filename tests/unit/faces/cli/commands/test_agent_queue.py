"""`--queue`: a verb that waits for the operation before it, as it is typed."""

import json

from tenure.faces.cli.exits import Exit
from tests.unit.faces.cli.commands.test_agent import RUN, serve_face
from tests.unit.support.api_client import api_test

LATER = ("--no-wait", "-o", "json")


async def start_create(face, tenure) -> str:
    """An agent whose creation does not end before its runtime is let go; that operation."""
    face.providers["runtime"].holding = True
    code, out, _ = await tenure("agent", "create", "a", *RUN, *LATER)
    assert code == 0
    return str(json.loads(out)["id"])


@api_test
async def test_a_suspend_waits_for_the_creation_before_it(face, typing):
    async with serve_face(face) as address:
        tenure = typing(face, address)
        created = await start_create(face, tenure)
        code, _, err = await tenure("agent", "suspend", "a")
        assert (code, "--queue" in err) == (Exit.FAILED, True)
        code, out, _ = await tenure("agent", "suspend", "a", "--queue", *LATER)
        assert code == 0
        assert (await face.ask("GET", "/v1/agents/a")).json["state"] == "CREATING", "not cancelled"
        code, _, err = await tenure("agent", "resume", "a", "--queue")
        assert code == Exit.FAILED, "one can wait"
        assert "tenure operation watch" in err
        face.providers["runtime"].holding = False
        await face.until(created, "SUCCEEDED")
        await face.until(json.loads(out)["id"], "SUCCEEDED")
        assert (await tenure("agent", "resume", "a", "--queue"))[0] == 0, "nobody is before it now"
        assert (await face.ask("GET", "/v1/agents/a")).json["state"] == "READY"


@api_test
async def test_what_is_accepted_at_once_does_not_wait_though_it_was_told_to(face, typing):
    """A delete takes an agent back that is being created: it never has to wait for that."""
    async with serve_face(face) as address:
        tenure = typing(face, address)
        created = await start_create(face, tenure)
        code, out, _ = await tenure("agent", "delete", "a", "--queue", *LATER)
        assert code == 0
        await face.until(created, "COMPENSATED")
        await face.until(json.loads(out)["id"], "SUCCEEDED")
        assert face.providers["identity"].things == {}
