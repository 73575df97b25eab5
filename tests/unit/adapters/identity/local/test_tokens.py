"""Tokens and assertions at the edges: rows that go, races with what ends a token, odd shapes."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from tenure.adapters.identity.local import LocalIdentity, build, jose
from tenure.core.errors import Invalid, Rejected
from tenure.ports.identity import OAuthError, OAuthRefusal, TokenRequester
from tenure.ports.provider import Presence
from tenure.sqlite.commit_thread import Done, InlineRunner, Work
from tenure.testing.contracts import identity_client as identity
from tenure.testing.contracts.identity_client import ADMIN, IdentityCase, client, key, word
from tenure.testing.contracts.store_rows import StoppedClock

ISSUER = "https://tenure.example"


def serve(tmp_path, scenario: Callable[[IdentityCase], Awaitable[None]], flush=None) -> None:
    async def main() -> None:
        clock = StoppedClock(identity.START)
        path = tmp_path / "identity.db"
        local = build(path, issuer=ISSUER, clock=clock, flush=flush or InlineRunner())
        await scenario(IdentityCase(local, clock))
        await local.close()

    asyncio.run(main())


def rows(case: IdentityCase, table: str) -> int:
    local = case.identity
    assert isinstance(local, LocalIdentity)
    ((count,),) = local._resources.read(f"SELECT count(*) FROM {table}")
    return int(count)


def test_used_assertions_are_forgotten_when_they_have_expired(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        for _ in range(40):
            await one.token()
        assert rows(case, "used") == 40
        case.clock.at += 61
        for _ in range(16):
            await one.token()
        assert rows(case, "used") <= 16

    serve(tmp_path, scenario)


def test_revoked_tokens_are_forgotten_when_they_have_expired(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        for _ in range(5):
            await case.identity.revoke(await one.token(), requester=ADMIN)
        assert rows(case, "revoked") == 5
        case.clock.at += 301
        await case.identity.revoke(await one.token(), requester=ADMIN)
        assert rows(case, "revoked") == 1

    serve(tmp_path, scenario)


def test_the_rows_of_a_client_go_with_it(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        await identity.invite_client(case)
        assert (rows(case, "client"), rows(case, "permit")) == (1, 1)
        await case.identity.remove(key())
        assert (rows(case, "client"), rows(case, "permit")) == (0, 0)

    serve(tmp_path, scenario)


class PausedDisk:
    """A disk that keeps one COMMIT back until it is let go."""

    def __init__(self) -> None:
        self.holds = False
        self.kept: list[tuple[Work, Done]] = []

    def __call__(self, work: Work, on_done: Done) -> None:
        if self.holds:
            self.kept.append((work, on_done))
        else:
            InlineRunner()(work, on_done)

    def let_go(self) -> None:
        self.holds = False
        for work, done in self.kept:
            InlineRunner()(work, done)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("ending", ["remove", "close"])
def test_no_token_is_minted_after_what_ends_it_was_acknowledged(tmp_path, ending):
    disk = PausedDisk()

    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        await one.token()
        disk.holds = True
        # The proof is on its way to the disk when the end comes, and the end is on the disk when
        # the proof's caller goes on.
        asked = asyncio.ensure_future(one.ask())
        await asyncio.sleep(0.01)
        end: Any = (
            case.identity.remove(key())
            if ending == "remove"
            else case.identity.raise_epoch("t", "a", epoch=5, closed=True)
        )
        ended = asyncio.ensure_future(end)
        await asyncio.sleep(0)
        disk.let_go()
        answer, _ = await asyncio.gather(asked, ended)
        assert isinstance(answer, OAuthRefusal)

    serve(tmp_path, scenario, disk)


# ---------------------------------------------------------------------------------- odd assertions


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "e30.e30.",
        ".e30.AA",
        "e30.e30.A A",
        "e30.e30.AA\n",
        "e30.W10.AA",
        "W10.e30.AA",
        "e30.e30.AA=",
        "ÿ.ÿ.ÿ",
        "a" * 17_000,
    ],
)
def test_what_is_no_compact_token_is_not_taken_apart(token):
    assert jose.parse_compact(token) is None


@pytest.mark.parametrize(
    "content",
    [b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":Infinity}', b"\xff", b'"x"', b"1", b"[" * 5_000],
)
def test_odd_json_inside_a_token_is_refused(content):
    odd = urlsafe_b64encode(content).rstrip(b"=").decode()
    assert jose.parse_compact(f"e30.{odd}.AA") is None
    assert jose.parse_compact(f"{odd}.e30.AA") is None
    assert jose.parse_compact("e30.e30.AA") is not None


def test_a_token_that_is_too_long_is_not_read():
    def token(length: int) -> str:
        said = urlsafe_b64encode(f'{{"a":"{"x" * length}"}}'.encode()).rstrip(b"=").decode()
        return f"e30.{said}.AA"

    assert jose.parse_compact(token(12_000)) is not None
    assert jose.parse_compact(token(13_000)) is None


def test_a_client_id_that_cannot_be_is_just_unknown(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        for odd in ("\ud800", "x" * 1_000, "a\x00b", ""):
            sent = one.assertion(iss=odd, sub=odd)
            assert word(await one.ask(sent)) is OAuthError.INVALID_CLIENT
            asked = await case.identity.read_client(odd, bearer="x")
            assert word(asked) is OAuthError.INVALID_TOKEN
            asked = await case.identity.register(f"{odd}.x", {"jwks": one.jwks})
            assert word(asked) is OAuthError.INVALID_TOKEN
        assert word(await one.ask(one.assertion(jti="\ud800"))) is OAuthError.INVALID_CLIENT
        assert word(await one.ask(one.assertion(exp=10**400))) is OAuthError.INVALID_CLIENT

    serve(tmp_path, scenario)


@pytest.mark.parametrize("header", [{"crit": ["kid"]}, {"b64": True, "crit": ["b64"]}])
def test_a_header_that_says_how_to_be_read_is_not_read(tmp_path, header):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        assert word(await one.ask(one.assertion(header))) is OAuthError.INVALID_CLIENT

    serve(tmp_path, scenario)


def test_every_audience_of_an_assertion_must_be_ours(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        ours = [ISSUER, f"{ISSUER}/oauth/token"]
        assert not isinstance(await one.ask(one.assertion(aud=ours)), OAuthRefusal)
        mixed = one.assertion(aud=[ISSUER, "https://other.example"])
        assert word(await one.ask(mixed)) is OAuthError.INVALID_CLIENT
        elsewhere = one.assertion(aud=f"{ISSUER}/oauth/revoke")
        assert word(await one.ask(elsewhere)) is OAuthError.INVALID_CLIENT

    serve(tmp_path, scenario)


def test_an_assertion_lasts_five_minutes_at_most(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one, now = await client(case), int(case.clock.now())
        assert not isinstance(await one.ask(one.assertion(exp=now + 300)), OAuthRefusal)
        assert word(await one.ask(one.assertion(exp=now + 320))) is OAuthError.INVALID_CLIENT

    serve(tmp_path, scenario)


def test_a_client_proves_itself_to_whom_it_asks(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        form = one.form(one.assertion(aud=f"{ISSUER}/oauth/introspect"))
        requester = await case.identity.authenticate(form, endpoint="/oauth/introspect")
        assert requester == TokenRequester("t", one.id)
        named = one.form(client_id="another")
        assert word(await case.identity.token(named)) is OAuthError.INVALID_CLIENT

    serve(tmp_path, scenario)


def test_what_we_signed_for_another_purpose_is_no_access_token(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        taken = jose.parse_compact(await one.token())
        assert taken is not None
        assert isinstance(case.identity, LocalIdentity)
        loaded = await case.identity._signers.ready()
        header = {"alg": "RS256", "kid": loaded.kid}
        for kind, active in (("at+jwt", True), ("JWT", False)):
            token = jwt.encode(
                {**header, "typ": kind}, dict(taken.claims), loaded.private, algorithms=["RS256"]
            )
            assert await identity.is_active(case, token) is active

    serve(tmp_path, scenario)


# -------------------------------------------------------------------------------------- odd keys


def test_a_key_is_checked_under_its_own_algorithm_alone():
    pair = RSAKey.generate_key(2048)
    public = {**pair.as_dict(private=False), "kid": "one"}
    kept = jose.read_keys({"keys": [public]}, "jwks")["one"]
    signed = jose.parse_compact(jose.sign(pair, "one", {"a": 1}))
    assert signed is not None
    assert jose.is_signed(signed, jose.load_key(kept))
    for name in ("ES256", "none", "HS256", "PS256", "RS512", None, ["RS256"]):
        assert not jose.is_signed(signed._replace(header={"alg": name}), jose.load_key(kept))
    for name in ("RS512", "PS256"):  # good signatures, by an algorithm that is not the key's here
        foreign = jws.serialize_compact({"alg": name}, b"{}", pair, algorithms=[name])
        taken = jose.parse_compact(foreign)
        assert taken is not None
        assert not jose.is_signed(taken, jose.load_key(kept))
    other = ECKey.generate_key("P-256")
    assert not jose.is_signed(signed, other)
    assert not jose.is_signed(signed._replace(header={"alg": "ES256"}), other)


def an_ec_key(**fields: object) -> dict[str, object]:
    pair = ECKey.generate_key("P-256", parameters={"kid": "one"})
    return {**pair.as_dict(private=False), **fields}


@pytest.mark.parametrize(
    ("one", "field"),
    [
        ("text", "must be a key"),
        (an_ec_key(d="secret"), "private"),
        (an_ec_key(kty="oct"), "kty"),
        (an_ec_key(kty=["EC"]), "kty"),
        (an_ec_key(kid=""), "kid"),
        (an_ec_key(kid=7), "kid"),
        (an_ec_key(kid="x" * 200), "kid"),
        (an_ec_key(crv="P-521"), "crv"),
        (an_ec_key(x=7), ".x"),
        (an_ec_key(x="AAAA"), "is not an EC key"),
        (an_ec_key(use="enc"), "use"),
        (an_ec_key(alg="RS256"), "alg"),
        ({"kty": "RSA", "kid": "one", "e": "AQAB", "n": "_" * 172}, "1032 bits"),
        ({"kty": "RSA", "kid": "one", "e": "A" * 9, "n": "_" * 342}, "e is too large"),
        ({**OKPKey.generate_key("Ed448").as_dict(private=False), "kid": "one"}, "crv"),
    ],
    ids=map(str, range(15)),
)
def test_a_key_that_cannot_be_used_is_refused_by_field(one, field):
    with pytest.raises(Invalid, match=field) as refused:
        jose.read_keys({"keys": [one]}, "jwks")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("jwks", [None, [], {}, {"keys": []}, {"keys": [an_ec_key()] * 2}, "x"])
def test_a_key_set_is_a_list_of_different_keys(jwks):
    with pytest.raises(Invalid, match="jwks"):
        jose.read_keys(jwks, "jwks")


# -------------------------------------------------------------------------------------- odd specs


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": 1}, "size"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a\n"}, "name"),
        ({"owner": "x" * 300}, "owner"),
        ({"scopes": "a b"}, "scopes"),
        ({"scopes": ["a b"]}, "scopes"),
        ({"scopes": [7]}, "scopes"),
        ({"scopes": ["a", "a"]}, "scopes"),
        ({"scopes": [str(number) for number in range(5_000)]}, "scopes"),
        ({"grant_types": ["password"]}, "grant_types"),
        ({"audiences": ["not a uri"]}, "audiences"),
        ({"audiences": ["https://x.example/#a"]}, "audiences"),
        ({"audiences": ["https://a@x.example/"]}, "audiences"),
        ({"jwks": {}}, "jwks"),
    ],
    ids=str,
)
def test_a_spec_that_cannot_be_is_rejected_by_field_and_for_good(tmp_path, spec, field):
    async def scenario(case: IdentityCase) -> None:
        with pytest.raises(Rejected, match=field):
            await case.identity.ensure(key(), spec)
        assert (await case.identity.inspect(key())).presence is Presence.ABSENT
        with pytest.raises(Rejected):
            await case.identity.ensure(key(), {})

    serve(tmp_path, scenario)


def test_one_token_says_no_more_than_can_be_sent(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = identity.IdentityClient(case, key().text)
        scopes = [f"{number:>04}:{'x' * 95}" for number in range(64)]
        await case.identity.ensure(key(), {"jwks": one.jwks, "scopes": scopes})
        assert word(await one.ask()) is OAuthError.INVALID_SCOPE
        said = await case.identity.introspect(
            await one.token(scope=" ".join(scopes[:40])), requester=ADMIN
        )
        assert said["scope"] == " ".join(scopes[:40])

    serve(tmp_path, scenario)


def test_a_client_need_not_have_an_owner_or_anything(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        await case.identity.ensure(key(), {"name": "n", "owner": "", "scopes": []})
        await case.identity.ensure(key("b"), {})
        assert (await case.identity.inspect(key())).presence is Presence.READY

    serve(tmp_path, scenario)


def test_a_client_without_the_grant_mints_nothing(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = identity.IdentityClient(case, key().text)
        await case.identity.ensure(key(), {"jwks": one.jwks, "grant_types": []})
        assert word(await one.ask()) is OAuthError.UNAUTHORIZED_CLIENT

    serve(tmp_path, scenario)


def test_keys_that_left_the_spec_prove_nothing_any_more(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        await case.identity.ensure(key(), {"scopes": ["a:read"]})
        assert word(await one.ask()) is OAuthError.INVALID_CLIENT
        assert not isinstance(await case.identity.invite(key()), OAuthRefusal)

    serve(tmp_path, scenario)


def test_another_planes_client_is_not_invited(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        await case.identity.ensure(key(), {})
        for other in (key()._replace(tenant="x"), key()._replace(agent="x")):
            assert word(await case.identity.invite(other)) is OAuthError.INVALID_CLIENT

    serve(tmp_path, scenario)


@pytest.mark.parametrize("name", ["client_id_issued_at", "registration_access_token"])
def test_an_update_says_whose_it_is_and_nothing_that_is_ours(tmp_path, name):
    async def scenario(case: IdentityCase) -> None:
        one, bearer = await identity.register_client(case)
        for metadata in (
            {"jwks": one.jwks},
            {"jwks": one.jwks, "client_id": "another"},
            {"jwks": one.jwks, "client_id": one.id, name: 1},
            {"client_id": one.id},
        ):
            asked = await case.identity.update_client(one.id, bearer=bearer, metadata=metadata)
            assert word(asked) is OAuthError.INVALID_CLIENT_METADATA
        assert not isinstance(await one.ask(), OAuthRefusal)

    serve(tmp_path, scenario)


def test_one_invitation_registers_one_of_many_at_once(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one, invitation = await identity.invite_client(case)
        asked = (case.identity.register(invitation.token, {"jwks": one.jwks}) for _ in range(5))
        answers = await asyncio.gather(*asked)
        assert sum(isinstance(answer, OAuthRefusal) for answer in answers) == 4

    serve(tmp_path, scenario)


def test_many_raise_one_epoch_and_the_greatest_stays(tmp_path):
    async def scenario(case: IdentityCase) -> None:
        one = await client(case)
        raised = (case.identity.raise_epoch("t", "a", epoch=n) for n in (3, 9, 1, 7, 2))
        await asyncio.gather(*raised)
        said = await case.identity.introspect(await one.token(), requester=ADMIN)
        assert said["epoch"] == 9

    serve(tmp_path, scenario)
