"""The authorization server over a real socket: uvicorn on loopback, a plain client, real keys.

Goal: what RFC 6749, 7009, 7523, 7591, 7592, 7662, 8414, 8707 and 9068 say on the wire is what a
client sees; nothing secret is in any log, error or file.
"""

import asyncio
import http.client
import json
import logging
import os
import signal
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode

import apsw
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.identity.local import build
from tenure.ports.identity import Invitation
from tenure.testing.contracts import provider
from tenure.testing.contracts.identity_client import RESOURCE, key
from tests.real.support.oauth_server import ADMIN, FORM, Answer, Live

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def live(tmp_path):
    with Live(tmp_path) as live:
        yield live


def assert_refused(answer: Answer, status: int, word: str) -> None:
    assert (answer.status, answer.json["error"]) == (status, word), answer
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"
    assert ("www-authenticate" in answer.headers) == (status == 401)


# ----------------------------------------------------------------------------------------- tokens


def test_a_token_is_what_rfc_9068_says_and_verifies_with_the_published_keys(live):
    client_id, pair = live.client()
    answer = live.token(client_id, pair, scope="a:read", resource=RESOURCE)
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert {"token_type": "Bearer", "expires_in": 300, "scope": "a:read"}.items() <= (
        answer.json.items()
    )
    metadata = live.send("GET", "/.well-known/oauth-authorization-server").json
    assert metadata["issuer"] == live.issuer
    keys = live.send("GET", metadata["jwks_uri"].removeprefix(live.issuer)).json
    token = jwt.decode(
        answer.json["access_token"], KeySet.import_key_set(keys), algorithms=["RS256"]
    )
    assert token.header["typ"] == "at+jwt"
    assert token.claims.keys() >= {
        "iss",
        "sub",
        "aud",
        "client_id",
        "scope",
        "iat",
        "exp",
        "jti",
        "tenant",
        "epoch",
    }
    assert token.claims["aud"] == RESOURCE
    assert token.claims["exp"] - token.claims["iat"] == 300


@pytest.mark.parametrize(
    ("alg", "make"),
    [
        ("ES256", lambda: ECKey.generate_key("P-256", parameters={"kid": "one"})),
        ("RS256", lambda: RSAKey.generate_key(2048, parameters={"kid": "one"})),
        ("Ed25519", lambda: OKPKey.generate_key("Ed25519", parameters={"kid": "one"})),
        pytest.param(
            "EdDSA",
            lambda: OKPKey.generate_key("Ed25519", parameters={"kid": "one"}),
            marks=pytest.mark.filterwarnings("ignore:EdDSA is deprecated"),
        ),
    ],
)
def test_each_allowed_algorithm_proves_a_client(live, alg, make):
    client_id, pair = live.client(pair=make())
    sent = live.form(live.assertion(client_id, pair, alg=alg), grant_type="client_credentials")
    assert live.post("/oauth/token", sent).status == 200


def test_a_replayed_assertion_is_refused_also_after_a_restart(tmp_path):
    with Live(tmp_path) as live:
        client_id, pair = live.client()
        sent = live.form(live.assertion(client_id, pair), grant_type="client_credentials")
        assert live.post("/oauth/token", sent).status == 200
        assert_refused(live.post("/oauth/token", sent), 401, "invalid_client")
        issuer = live.issuer

    async def again() -> object:
        local = build(tmp_path / "identity.db", issuer=issuer, clock=SystemClock())
        try:
            return await local.token(sent)
        finally:
            await local.close()

    assert "used before" in str(asyncio.run(again()))


def encode_part(part: object) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_none_and_symmetric_signatures_are_refused(live):
    client_id, pair = live.client()
    good = live.assertion(client_id, pair)
    _, claims, signature = good.split(".")
    public = json.dumps(pair.as_dict(private=False)).encode()
    forged = jwt.encode(
        {"alg": "HS256", "kid": "one"},
        json.loads(_decode_part(claims)),
        OctKey.import_key(public),
        algorithms=["HS256"],
    )
    critical = {"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}
    for assertion in (
        f"{encode_part({'alg': 'none', 'kid': 'one'})}.{claims}.",
        f"{encode_part({'alg': 'none', 'kid': 'one'})}.{claims}.{signature}",
        f"{encode_part({'alg': 'RS256', 'kid': 'one'})}.{claims}.{signature}",
        f"{encode_part({'kid': 'one'})}.{claims}.{signature}",
        f"{encode_part(critical)}.{claims}.{signature}",
        forged,
        good[:-4] + "AAAA",
        "not.a.token",
        "x" * 9_000,
        "",
    ):
        sent = live.form(assertion, grant_type="client_credentials")
        assert_refused(live.post("/oauth/token", sent), 401, "invalid_client")
    assert live.post("/oauth/token", live.form(good, grant_type="client_credentials")).status == 200


def _decode_part(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_client_secrets_and_bearers_prove_no_client(live):
    client_id, pair = live.client()
    fields = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": "x"}
    assert_refused(live.post("/oauth/token", fields), 401, "invalid_client")
    assert_refused(
        live.post("/oauth/token", fields, authorization="Basic eDp5"), 401, "invalid_client"
    )
    sent = live.form(live.assertion(client_id, pair), grant_type="client_credentials")
    bearer = live.post("/oauth/token", sent, authorization=f"Bearer {ADMIN}")
    assert_refused(bearer, 401, "invalid_client")


def test_refusals_carry_oauths_words(live):
    client_id, pair = live.client()
    assert_refused(live.token(client_id, pair, scope="b:read"), 400, "invalid_scope")
    assert_refused(live.token(client_id, pair, resource="https://x.example"), 400, "invalid_target")
    assert_refused(
        live.token(client_id, pair, grant_type="password"), 400, "unsupported_grant_type"
    )
    assert_refused(live.post("/oauth/token", {"scope": "a:read"}), 400, "invalid_request")
    live.call(live.local.raise_epoch("t", "a", epoch=1, closed=True))
    assert_refused(live.token(client_id, pair), 400, "unauthorized_client")


# ------------------------------------------------------------------------------------------ bodies


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b"grant_type=a&grant_type=a", FORM),
        (400, b"grant_type", FORM),
        (400, b"grant_type=%ff", FORM),
        (400, b"grant_type=\xff", FORM),
        (400, b"", FORM),
        (413, b"a=" + b"x" * 70_000, FORM),
        (415, b"grant_type=client_credentials", "text/plain"),
        (415, b"grant_type=client_credentials", FORM + "; charset=utf-16"),
        (415, b"{}", "application/json"),
    ],
)
def test_an_odd_form_is_refused_in_oauths_form(live, status, body, kind):
    answer = live.send("POST", "/oauth/token", body, content_type=kind)
    assert_refused(answer, status, "invalid_request")


def test_a_form_of_too_many_fields_is_not_read(live):
    many = {"grant_type": "password"} | {f"a{number}": "1" for number in range(40)}
    assert_refused(live.post("/oauth/token", many), 400, "invalid_request")


def test_nothing_is_taken_from_the_query(live):
    client_id, pair = live.client()
    sent = live.form(live.assertion(client_id, pair), grant_type="client_credentials")
    assert_refused(live.post("/oauth/token?scope=a:read", sent), 400, "invalid_request")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"jwks": {}, "jwks": {}}'),
        (400, b'{"a": NaN}'),
        (400, b'{"a": "\\ud800"}'),
        (400, b"[" * 100_00 + b"]" * 100_00),
        (400, b'{"a":' * 40 + b"1" + b"}" * 40),
        (400, b"[]"),
        (400, b"\xff"),
        (400, b""),
        (413, b'"' + b"x" * 70_000 + b'"'),
    ],
)
def test_an_odd_registration_is_refused(live, status, body):
    answer = live.send(
        "POST", "/oauth/register", body, content_type="application/json", authorization="Bearer x"
    )
    assert_refused(answer, status, "invalid_request")


# ---------------------------------------------------------------------------------- ending a token


def test_introspection_needs_an_administrator_or_a_client(live):
    client_id, pair = live.client()
    token = live.token(client_id, pair).json["access_token"]
    assert live.introspect(token)["active"] is True
    assert live.introspect(token, "other-admin") == {"active": False}
    assert_refused(live.post("/oauth/introspect", {"token": token}), 401, "invalid_client")
    nobody = live.post("/oauth/introspect", {"token": token}, authorization="Bearer nobody")
    assert_refused(nobody, 401, "invalid_token")
    self_made = live.post("/oauth/introspect", {"token": token}, authorization=f"Bearer {token}")
    assert_refused(self_made, 401, "invalid_token")
    proof = live.assertion(client_id, pair, aud=f"{live.issuer}/oauth/introspect")
    answer = live.post("/oauth/introspect", live.form(proof, token=token))
    assert answer.json["active"] is True
    again = live.post("/oauth/introspect", live.form(proof, token=token))
    assert_refused(again, 401, "invalid_client")
    administrator = {"authorization": f"Bearer {ADMIN}"}
    assert_refused(live.post("/oauth/introspect", {}, **administrator), 400, "invalid_request")


def test_revocation_always_succeeds_for_whom_it_knows(live):
    client_id, pair = live.client()
    other_id, other = live.client("b", pair=ECKey.generate_key("P-256", parameters={"kid": "one"}))
    token = live.token(client_id, pair).json["access_token"]
    proof = live.form(live.assertion(other_id, other), token=token)
    assert live.post("/oauth/revoke", proof).status == 200
    assert live.introspect(token)["active"] is True
    proof = live.form(live.assertion(client_id, pair), token=token)
    answer = live.post("/oauth/revoke", proof)
    assert (answer.status, answer.body) == (200, b"")
    assert live.introspect(token) == {"active": False}
    proof = live.form(live.assertion(client_id, pair), token="no token")
    assert live.post("/oauth/revoke", proof).status == 200
    assert_refused(live.post("/oauth/revoke", {"token": token}), 401, "invalid_client")


def test_a_forged_or_changed_token_is_inactive(live):
    client_id, pair = live.client()
    token = live.token(client_id, pair).json["access_token"]
    header, claims, signature = token.split(".")
    said = json.loads(_decode_part(claims))
    said["scope"] = "everything"
    for odd in (
        f"{header}.{encode_part(said)}.{signature}",
        f"{encode_part({'alg': 'none', 'typ': 'at+jwt'})}.{claims}.",
        token[:-6] + "AAAAAA",
        live.assertion(client_id, pair),
        token + "A",
    ):
        assert live.introspect(odd) == {"active": False}
    assert live.introspect(token)["active"] is True


def test_removal_and_epochs_end_tokens_at_once(live):
    client_id, pair = live.client()
    first = live.token(client_id, pair).json["access_token"]
    live.call(live.local.raise_epoch("t", "a", epoch=2))
    assert live.introspect(first) == {"active": False}
    second = live.token(client_id, pair).json["access_token"]
    assert live.introspect(second)["epoch"] == 2
    live.call(live.local.remove(key("a")))
    assert live.introspect(second) == {"active": False}
    assert_refused(live.token(client_id, pair), 401, "invalid_client")


def test_a_provider_that_cannot_answer_is_temporarily_unavailable(live):
    client_id, pair = live.client()
    live.token(client_id, pair)
    live.call(live.local.close())
    answer = live.token(client_id, pair)
    assert_refused(answer, 503, "temporarily_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert b"file" not in answer.body


def test_two_authorizations_are_none(live):
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.putrequest("POST", "/oauth/introspect")
    for bearer in (ADMIN, "another"):
        connection.putheader("Authorization", f"Bearer {bearer}")
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()
    long = live.post("/oauth/introspect", {"token": "x"}, authorization="Bearer " + "x" * 9_000)
    assert_refused(long, 401, "invalid_token")


# ------------------------------------------------------------------------------------ registration


def invite(live: Live, agent: str = "a") -> Invitation:
    live.call(live.local.ensure(key(agent), {"scopes": ["a:read", "a:write"]}))
    invitation = live.call(live.local.invite(key(agent)))
    assert isinstance(invitation, Invitation)
    live.sent.append(invitation.token)
    return invitation


def test_a_registration_is_made_read_changed_and_withdrawn(live):
    invitation = invite(live)
    pair = ECKey.generate_key("P-256", parameters={"kid": "one"})
    jwks = {"keys": [pair.as_dict(private=False)]}
    metadata = {"jwks": jwks, "client_name": "mine", "scope": "a:read", "logo_uri": "x"}
    made = live.put_json("POST", "/oauth/register", metadata, invitation.token)
    assert made.status == 201
    assert made.headers["cache-control"] == "no-store"
    assert (made.json["client_id"], made.json["scope"]) == (key("a").text, "a:read")
    assert made.json["token_endpoint_auth_method"] == "private_key_jwt"
    assert "logo_uri" not in made.json
    path = made.json["registration_client_uri"].removeprefix(live.issuer)
    bearer = made.json["registration_access_token"]
    read = live.send("GET", path, authorization=f"Bearer {bearer}")
    assert read.json == made.json
    token = live.token(made.json["client_id"], pair).json["access_token"]
    wider = {"client_id": made.json["client_id"], "jwks": jwks}
    changed = live.put_json("PUT", path, wider, bearer)
    assert (changed.status, changed.json["scope"]) == (200, "a:read a:write")
    assert_refused(live.send("GET", path, authorization=f"Bearer {bearer}"), 401, "invalid_token")
    assert_refused(
        live.send("DELETE", path, authorization=f"Bearer {bearer}"), 401, "invalid_token"
    )
    bearer = changed.json["registration_access_token"]
    assert live.send("DELETE", path, authorization=f"Bearer {bearer}").status == 204
    assert_refused(live.send("GET", path, authorization=f"Bearer {bearer}"), 401, "invalid_token")
    assert live.introspect(token) == {"active": False}
    assert_refused(live.send("GET", path), 401, "invalid_token")
    assert_refused(
        live.put_json("POST", "/oauth/register", metadata, "nobody.x"), 401, "invalid_token"
    )
    assert live.send("PATCH", path).status == 405


@pytest.mark.parametrize(
    "odd",
    [
        {"jwks_uri": "http://169.254.169.254/"},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"grant_types": ["authorization_code"]},
        {"redirect_uris": ["https://x.example"]},
        {"response_types": ["code"]},
        {"scope": "a:read b:read"},
        {"scope": 7},
        {"jwks": {"keys": []}},
        {"jwks": {"keys": [{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}]}},
        {"jwks": {"keys": [{"kty": "EC", "kid": "one", "crv": "P-256", "x": "AA", "y": "AA"}]}},
        {f"x{number}": 1 for number in range(70)},
    ],
    ids=str,
)
def test_metadata_that_cannot_be_is_refused_and_the_invitation_stays_good(live, odd):
    invitation = invite(live)
    pair = ECKey.generate_key("P-256", parameters={"kid": "one"})
    good = {"jwks": {"keys": [pair.as_dict(private=False)]}}
    answer = live.put_json("POST", "/oauth/register", good | odd, invitation.token)
    assert_refused(answer, 400, "invalid_client_metadata")
    assert live.put_json("POST", "/oauth/register", good, invitation.token).status == 201


# ------------------------------------------------------------------------------- what is never seen


def is_in(secret: object, content: bytes) -> bool:
    """Whether a piece of the secret is there: a long value is split over a file's pages."""
    text = str(secret).encode()
    return any(text[at : at + 20] in content for at in range(max(1, len(text) - 20)))


def test_no_token_assertion_or_private_key_is_in_a_log_a_file_or_an_error(live, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    client_id, pair = live.client()
    token = live.token(client_id, pair).json["access_token"]
    live.introspect(token)
    invitation = invite(live, "b")
    bodies = [
        live.post("/oauth/introspect", {"token": token}, authorization="Bearer canary-77").body,
        live.put_json("POST", "/oauth/register", {"jwks": "canary-77"}, invitation.token).body,
        live.token(client_id, pair, scope="canary-77", resource="canary-77").body,
        live.post("/oauth/token", {"grant_type": "canary-77"}).body,
        live.send("GET", "/oauth/register/somebody", authorization="Bearer canary-77").body,
        live.send("POST", "/oauth/token", b"canary-77", content_type="canary-77").body,
    ]
    assert not any(b"canary-77" in body for body in bodies)
    live.call(live.local.rotate())
    secrets = [sent.rpartition(".")[2] for sent in live.sent]
    secrets += [str(pair.as_dict(private=True)["d"]), ADMIN, "canary-77"]
    logged = " ".join(str(record.__dict__) for record in caplog.records)
    assert caplog.records
    assert not [secret for secret in secrets if secret in logged]
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [secret for secret in secrets if is_in(secret, on_disk)]
    loaded = live.call(live.local._signers.ready())
    signer = loaded.private.as_dict(private=True)
    assert is_in(signer["n"], on_disk)  # so what is looked for would be found
    assert not [name for name in ("d", "p", "q", "dp", "dq", "qi") if is_in(signer[name], on_disk)]


def test_the_metadata_answer_only_what_is_there(live):
    metadata = live.send("GET", "/.well-known/oauth-authorization-server")
    assert "max-age" in metadata.headers["cache-control"]
    for name, value in metadata.json.items():
        if name.endswith("_endpoint"):
            path = value.removeprefix(live.issuer)
            assert live.send("POST", path).status in {400, 401, 415}, path
    assert live.send("GET", "/oauth/token").status == 405


# ---------------------------------------------------------------------------------------- kill -9

CHILD = """
import asyncio, sys
from tenure.adapters.clock.system import SystemClock
from tenure.adapters.identity.local import build
from tenure.testing.contracts.provider import key

async def main():
    local = build(sys.argv[1], issuer="https://tenure.example", clock=SystemClock())
    first = int(sys.argv[2])
    async def one(number):
        await local.ensure(key(f"n{number}"), {"scopes": ["a"]})
        await local.invite(key(f"n{number}"))
        if number % 3 == 0:
            await local.remove(key(f"n{number}"))
        else:
            print(number, flush=True)
    for start in range(first, first + 100_000, 8):
        await asyncio.gather(*(one(number) for number in range(start, start + 8)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_kill_9_during_registration_leaves_whole_clients_only(tmp_path, tally):
    path = tmp_path / "identity.db"
    acknowledged: set[int] = set()
    for life in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(life * 100_000)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(3 + life * 2):
            acknowledged.add(int(child.stdout.readline()))
        os.kill(child.pid, signal.SIGKILL)
        acknowledged |= {int(line) for line in child.stdout if line.endswith("\n")}
        child.wait()
        child.stdout.close()
        tally.add("kills")
        connection = apsw.Connection(str(path))
        present = {
            k for (k,) in connection.execute("SELECT key FROM resource WHERE state = 'PRESENT'")
        }
        clients = {k for (k,) in connection.execute("SELECT id FROM client")}
        permits = {k for (k,) in connection.execute("SELECT client FROM permit")}
        connection.close()
        assert present == clients
        assert permits <= clients
        assert {provider.key(f"n{number}").text for number in acknowledged} <= permits
