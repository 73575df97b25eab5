"""An agent proves who it is: invited, it registers its own key, gets a token, and loses it.

Goal: the whole way over real HTTP, with a key that only the agent ever had; what a suspend closes
is closed at the authorization server too.
"""

import http.client
import json
import time
from urllib.parse import urlencode

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from tenure.ports.identity import ASSERTION_TYPE
from tests.e2e.support.plane_process import EXAMPLE, home_at

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
AUDIENCE = "https://mail.example"
FORM = "application/x-www-form-urlencoded"


class Server:
    """A client of the control plane and of its authorization server."""

    def __init__(self, home):
        self.address = (home / "address").read_text().strip()
        self.admin = (home / "token").read_text().strip()

    def ask(self, method, path, body=b"", *, bearer="", kind="application/json", **headers):
        line = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=120)
        given = {"Content-Type": kind, **headers}
        if bearer:
            given["Authorization"] = f"Bearer {bearer}"
        line.request(method, path, body, given)
        answer = line.getresponse()
        told = answer.status, json.loads(answer.read() or b"null")
        line.close()
        return told

    def is_active(self, token):
        form = urlencode({"token": token})
        status, told = self.ask("POST", "/oauth/introspect", form, bearer=self.admin, kind=FORM)
        assert status == 200, told
        return told["active"]


def assertion(pair, client_id, audience, number):
    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + 60,
        "jti": f"n{number}",
    }
    return jwt.encode({"alg": "ES256", "kid": "mine"}, claims, pair, algorithms=["ES256"])


def token_form(assertion_text):
    return urlencode(
        {
            "grant_type": "client_credentials",
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": assertion_text,
            "scope": "mail:read",
            "resource": AUDIENCE,
        }
    )


def test_an_agent_registers_its_own_key_and_loses_its_token_when_it_is_suspended(tmp_path):
    pair = ECKey.generate_key("P-256", parameters={"kid": "mine"})
    with home_at(tmp_path / "home") as plane:
        plane.start()
        server = Server(plane.home)
        spec = {
            "name": "mailer",
            "runtime": {"command": ["python3", str(EXAMPLE / "agent.py")]},
            "credentials": [{"audience": AUDIENCE, "scopes": ["mail:read"]}],
        }
        wait = {"Prefer": "wait=60"}
        made = server.ask("POST", "/v1/agents", json.dumps(spec), bearer=server.admin, **wait)
        assert made[1]["state"] == "SUCCEEDED", made
        status, invitation = server.ask("POST", "/v1/agents/mailer:invite", bearer=server.admin)
        assert status == 200, invitation
        keys = {"jwks": {"keys": [pair.as_dict(private=False)]}}
        register = "/oauth/register"
        registered = server.ask("POST", register, json.dumps(keys), bearer=invitation["token"])
        assert registered[0] == 201, registered
        again = server.ask("POST", register, json.dumps(keys), bearer=invitation["token"])
        assert again[0] == 401, "an invitation is good once"
        client_id = invitation["client_id"]
        assertion_text = assertion(pair, client_id, server.address, 1)
        status, told = server.ask("POST", "/oauth/token", token_form(assertion_text), kind=FORM)
        assert status == 200, told
        assert server.is_active(told["access_token"])
        replayed = server.ask("POST", "/oauth/token", token_form(assertion_text), kind=FORM)
        assert replayed[0] in {400, 401}, "an assertion is good once"

        path = "/v1/agents/mailer:suspend"
        closed = server.ask("POST", path, b"{}", bearer=server.admin, **wait)
        assert closed[1]["state"] == "SUCCEEDED", closed
        assert not server.is_active(told["access_token"]), "what was minted before is void"
        assertion_text = assertion(pair, client_id, server.address, 2)
        refused = server.ask("POST", "/oauth/token", token_form(assertion_text), kind=FORM)
        assert refused[0] in {400, 401}, "nothing is minted for what is suspended"

        opened = server.ask("POST", "/v1/agents/mailer:resume", bearer=server.admin, **wait)
        assert opened[1]["state"] == "SUCCEEDED", opened
        assertion_text = assertion(pair, client_id, server.address, 3)
        status, told = server.ask("POST", "/oauth/token", token_form(assertion_text), kind=FORM)
        assert status == 200, told
        before = server.ask("GET", "/.well-known/jwks.json")[1]["keys"]
        status, key = server.ask("POST", "/v1/keys:rotate", bearer=server.admin)
        assert status == 200, key
        after = [one["kid"] for one in server.ask("GET", "/.well-known/jwks.json")[1]["keys"]]
        assert key["kid"] in after
        assert {one["kid"] for one in before} <= set(after), "what older tokens need stays"
        assert server.is_active(told["access_token"])
        gone = server.ask("DELETE", "/v1/agents/mailer", bearer=server.admin, **wait)
        assert gone[1]["state"] == "SUCCEEDED", gone
        assert not server.is_active(told["access_token"])
        late = server.ask("POST", "/v1/agents/mailer:invite", bearer=server.admin)
        assert late[0] == 404
        plane.stop()
