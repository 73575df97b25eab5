"""An authorization server on a port of its own, in a thread with a loop of its own."""

import asyncio
import http.client
import json
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.applications import Starlette

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.identity.local import LocalIdentity, build
from tenure.faces.oauth.routes import routes
from tenure.ports.identity import ASSERTION_TYPE
from tenure.testing.contracts.identity_client import RESOURCE, key
from tests.real.support.runtimes import until

ADMIN = "admin-bearer-canary-5f1c"
FORM = "application/x-www-form-urlencoded"
SECONDS = 60.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Live:
    """A server on a port of its own, in a thread with a loop of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "identity.db"
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.sent: list[str] = []
        self._numbers = iter(range(1_000_000))
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)

    async def _main(self) -> None:
        self.local: LocalIdentity = build(self.path, issuer=self.issuer, clock=SystemClock())
        self.loop = asyncio.get_running_loop()

        async def admin(bearer: str) -> str | None:
            return {ADMIN: "t", "other-admin": "another"}.get(bearer)

        app = Starlette(routes=routes(self.local, admin=admin))
        self.server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        self._started.set()
        await self.server.serve(sockets=[self._socket])
        await self.local.close()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(SECONDS)
        assert until(lambda: self.server.started, SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(SECONDS)

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(SECONDS)

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            got = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, got, answer.read())
        finally:
            connection.close()

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        return self.send("POST", path, urlencode(fields).encode(), content_type=FORM, **headers)

    def put_json(self, method: str, path: str, body: object, bearer: str) -> Answer:
        return self.send(
            method,
            path,
            json.dumps(body).encode(),
            content_type="application/json",
            authorization=f"Bearer {bearer}",
        )

    # ------------------------------------------------------------------------------- a client

    def client(self, agent: str = "a", *, pair=None, scopes=("a:read", "a:write")):
        pair = pair or ECKey.generate_key("P-256", parameters={"kid": "one"})
        spec = {
            "jwks": {"keys": [pair.as_dict(private=False)]},
            "scopes": list(scopes),
            "audiences": [RESOURCE],
        }
        self.call(self.local.ensure(key(agent), spec))
        return key(agent).text, pair

    def assertion(self, client_id: str, pair, *, alg: str = "ES256", header=None, **claims):
        now = int(time.time())
        said = {
            "iss": client_id,
            "sub": client_id,
            "aud": self.issuer,
            "iat": now,
            "exp": now + 60,
            "jti": f"jti-{next(self._numbers)}",
        } | claims
        top = {"alg": alg, "kid": "one"} | (header or {})
        sent = jwt.encode(top, said, pair, algorithms=[alg])
        self.sent.append(sent)
        return sent

    def form(self, assertion: str, **fields: str) -> dict[str, str]:
        proof = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
        return proof | fields

    def token(self, client_id: str, pair, **fields: str) -> Answer:
        sent = self.form(self.assertion(client_id, pair), grant_type="client_credentials")
        answer = self.post("/oauth/token", sent | fields)
        if answer.status == 200:
            self.sent.append(answer.json["access_token"])
        return answer

    def introspect(self, token: str, bearer: str = ADMIN) -> dict[str, object]:
        answer = self.post("/oauth/introspect", {"token": token}, authorization=f"Bearer {bearer}")
        assert answer.status == 200
        body: dict[str, object] = answer.json
        return body
