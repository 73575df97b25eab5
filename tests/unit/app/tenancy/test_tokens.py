"""Tokens: who carries one, for how long, and for whose world."""

import pytest

from proofs.agents.lifecycle import CALLER, TENANT
from tenure.app.agents import quotas
from tenure.app.tenancy import audit, tokens
from tenure.core.errors import Forbidden, Invalid, NotFound, Unauthenticated
from tenure.core.roles import Caller, Role
from tests.unit.support.agent_planes import STRANGER, VIEWER, alive


async def create(lives, caller=CALLER, **more):
    given = {"principal": "a person", "role": Role.OPERATOR, **more}
    return await tokens.create_token(lives.plane, caller, **given)


@alive
async def test_a_token_says_who_carries_it(lives):
    view, token = await create(lives)
    assert token.startswith(tokens.PREFIX)
    caller = await tokens.authenticate(lives.plane, token)
    assert caller == Caller(TENANT, "a person", Role.OPERATOR)
    assert (view.tenant, view.principal, view.role) == caller


@alive
async def test_only_the_hash_of_a_token_is_kept(lives):
    _, token = await create(lives)
    for table in ("token", "audit", "outbox"):
        assert token not in str(await lives.rows(table))
        assert token.removeprefix(tokens.PREFIX) not in str(await lives.rows(table))


@pytest.mark.parametrize("guess", ["", "x", "tenure_", "é" * 20, "x" * 129, "tenure_admin\n"])
def test_what_is_no_token_carries_nobody(guess):
    @alive
    async def play(lives):
        await create(lives)
        with pytest.raises(Unauthenticated):
            await tokens.authenticate(lives.plane, guess)

    play()


@alive
async def test_a_token_is_no_good_once_it_has_expired(lives):
    _, token = await create(lives, seconds=10.0)
    await tokens.authenticate(lives.plane, token)
    await lives.clock.sleep(9.9)
    await tokens.authenticate(lives.plane, token)
    await lives.clock.sleep(0.2)
    with pytest.raises(Unauthenticated, match="expired"):
        await tokens.authenticate(lives.plane, token)


@alive
async def test_a_revoked_token_is_no_good_from_then_on(lives):
    view, token = await create(lives)
    _, other = await create(lives)
    revoked = await tokens.revoke_token(lives.plane, CALLER, view.id)
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(lives.plane, token)
    await tokens.authenticate(lives.plane, other)
    await lives.clock.sleep(5)
    again = await tokens.revoke_token(lives.plane, CALLER, view.id)
    assert again.revoked_at == revoked.revoked_at, "the first time stands"
    told = [row for row in await lives.rows("audit") if row["action"] == "token.revoke"]
    assert len(told) == 1


@alive
async def test_only_an_admin_hands_out_lists_and_revokes(lives):
    view, _ = await create(lives)
    for role in (Role.VIEWER, Role.OPERATOR, Role.APPROVER):
        caller = VIEWER._replace(role=role)
        for asked in (
            create(lives, caller),
            tokens.list_tokens(lives.plane, caller),
            tokens.revoke_token(lives.plane, caller, view.id),
            audit.list_audit(lives.plane, caller),
            quotas.set_quota(lives.plane, caller, most=1),
        ):
            with pytest.raises(Forbidden):
                await asked


@alive
async def test_a_tenants_admin_sees_and_makes_tokens_of_that_tenant_alone(lives):
    mine, _ = await create(lives)
    theirs, token = await create(lives, tenant="elsewhere", role=Role.ADMIN)
    stranger = await tokens.authenticate(lives.plane, token)
    assert stranger.tenant == "elsewhere"
    assert [view.id for view in await tokens.list_tokens(lives.plane, stranger)] == [theirs.id]
    assert [view.id for view in await tokens.list_tokens(lives.plane, CALLER)] == [mine.id]
    with pytest.raises(NotFound):
        await tokens.revoke_token(lives.plane, stranger, mine.id)
    for tenant in ("default", "third"):
        with pytest.raises(NotFound):
            await create(lives, stranger, tenant=tenant)


@alive
async def test_more_tokens_than_a_page_are_all_listed(lives):
    for _ in range(1_005):
        await create(lives)
    views = await tokens.list_tokens(lives.plane, CALLER)
    assert len({view.id for view in views}) == 1_005


@pytest.mark.parametrize(
    "given",
    [
        {"principal": ""},
        {"principal": "a\nb"},
        {"principal": "a" * 256},
        {"tenant": "Upper"},
        {"tenant": "a\n"},
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": float("nan")},
    ],
)
def test_odd_words_are_refused(given):
    @alive
    async def play(lives):
        with pytest.raises(Invalid):
            await create(lives, **given)
        assert await lives.rows("token") == []

    play()


@alive
async def test_the_first_token_is_the_admins_and_letting_it_in_twice_changes_nothing(lives):
    for _ in range(2):
        await tokens.begin(lives.plane, "tenure_first")
    caller = await tokens.authenticate(lives.plane, "tenure_first")
    assert caller == Caller("default", "admin", Role.ADMIN)
    assert len(await lives.rows("token")) == 1
    (line,) = await audit.list_audit(lives.plane, caller)
    assert (line.action, line.principal) == ("token.create", "tenure up")
    assert line.body["role"] == "admin"


@alive
async def test_another_tenants_token_is_as_absent_as_one_that_never_was(lives):
    view, _ = await create(lives)
    for token_id in (view.id, "never"):
        with pytest.raises(NotFound) as refused:
            await tokens.revoke_token(lives.plane, STRANGER, token_id)
        assert str(refused.value) == f"there is no token {token_id}"


@alive
async def test_the_planes_own_admin_hands_out_lists_and_revokes_tokens_of_any_tenant(lives):
    plane, admin = lives.plane, Caller(tokens.TENANT, "root", Role.ADMIN)
    made, token = await tokens.create_token(
        plane, admin, tenant="elsewhere", principal="p", role=Role.VIEWER
    )
    assert [view.id for view in await tokens.list_tokens(plane, admin, tenant="elsewhere")] == [
        made.id
    ]
    assert made.id not in {view.id for view in await tokens.list_tokens(plane, admin)}
    with pytest.raises(NotFound):
        await tokens.list_tokens(plane, STRANGER._replace(tenant="third"), tenant="elsewhere")
    assert (await tokens.revoke_token(plane, admin, made.id)).revoked_at is not None
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(plane, token)
