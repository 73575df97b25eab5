"""Tokens: who carries one, for how long, and for whose world."""

import pytest

from proofs.agents.lifecycle import CALLER, TENANT
from tenure.app.tenancy import audit, quotas, tokens
from tenure.core.errors import Forbidden, Invalid, NotFound, Unauthenticated
from tenure.core.records import AuditRecord, OutboxRecord, TokenRecord
from tenure.core.roles import Caller, Role
from tests.unit.support.agent_planes import STRANGER, VIEWER, agent_test


async def create(harness, caller=CALLER, **more):
    fields = {"principal": "a person", "role": Role.OPERATOR, **more}
    return await tokens.create_token(harness.plane, caller, **fields)


@agent_test
async def test_a_token_says_who_carries_it(harness):
    view, token = await create(harness)
    assert token.startswith(tokens.PREFIX)
    caller = await tokens.authenticate(harness.plane, token)
    assert caller == Caller(TENANT, "a person", Role.OPERATOR)
    assert (view.tenant, view.principal, view.role) == caller


@agent_test
async def test_only_the_hash_of_a_token_is_kept(harness):
    _, token = await create(harness)
    for record in (TokenRecord, AuditRecord, OutboxRecord):
        assert token not in str(await harness.rows(record))
        assert token.removeprefix(tokens.PREFIX) not in str(await harness.rows(record))


@pytest.mark.parametrize("guess", ["", "x", "tenure_", "é" * 20, "x" * 129, "tenure_admin\n"])
def test_what_is_no_token_carries_nobody(guess):
    @agent_test
    async def play(harness):
        await create(harness)
        with pytest.raises(Unauthenticated):
            await tokens.authenticate(harness.plane, guess)

    play()


@agent_test
async def test_a_token_is_no_good_once_it_has_expired(harness):
    _, token = await create(harness, seconds=10.0)
    await tokens.authenticate(harness.plane, token)
    await harness.clock.sleep(9.9)
    await tokens.authenticate(harness.plane, token)
    await harness.clock.sleep(0.2)
    with pytest.raises(Unauthenticated, match="expired"):
        await tokens.authenticate(harness.plane, token)


@agent_test
async def test_a_revoked_token_is_no_good_from_then_on(harness):
    view, token = await create(harness)
    _, other = await create(harness)
    revoked = await tokens.revoke_token(harness.plane, CALLER, view.id)
    with pytest.raises(Unauthenticated):
        await tokens.authenticate(harness.plane, token)
    await tokens.authenticate(harness.plane, other)
    await harness.clock.sleep(5)
    again = await tokens.revoke_token(harness.plane, CALLER, view.id)
    assert again.revoked_at == revoked.revoked_at, "the first time stands"
    told = [row for row in await harness.rows(AuditRecord) if row.action == "token.revoke"]
    assert len(told) == 1


@agent_test
async def test_only_an_admin_hands_out_lists_and_revokes(harness):
    view, _ = await create(harness)
    for role in (Role.VIEWER, Role.OPERATOR, Role.APPROVER):
        caller = VIEWER._replace(role=role)
        for asked in (
            create(harness, caller),
            tokens.list_tokens(harness.plane, caller),
            tokens.revoke_token(harness.plane, caller, view.id),
            audit.list_audit(harness.plane, caller),
            quotas.set_quota(harness.plane, caller, most=1),
        ):
            with pytest.raises(Forbidden):
                await asked


@agent_test
async def test_a_tenants_admin_sees_and_makes_tokens_of_that_tenant_alone(harness):
    mine, _ = await create(harness)
    theirs, token = await create(harness, tenant="elsewhere", role=Role.ADMIN)
    stranger = await tokens.authenticate(harness.plane, token)
    assert stranger.tenant == "elsewhere"
    assert [view.id for view in await tokens.list_tokens(harness.plane, stranger)] == [theirs.id]
    assert [view.id for view in await tokens.list_tokens(harness.plane, CALLER)] == [mine.id]
    with pytest.raises(NotFound):
        await tokens.revoke_token(harness.plane, stranger, mine.id)
    for tenant in ("default", "third"):
        with pytest.raises(NotFound):
            await create(harness, stranger, tenant=tenant)


@agent_test
async def test_more_tokens_than_a_page_are_all_listed(harness):
    for _ in range(1_005):
        await create(harness)
    views = await tokens.list_tokens(harness.plane, CALLER)
    assert len({view.id for view in views}) == 1_005


@pytest.mark.parametrize(
    "fields",
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
def test_odd_words_are_refused(fields):
    @agent_test
    async def play(harness):
        with pytest.raises(Invalid):
            await create(harness, **fields)
        assert await harness.rows(TokenRecord) == []

    play()


@agent_test
async def test_the_first_token_is_the_admins_and_letting_it_in_twice_changes_nothing(harness):
    for _ in range(2):
        await tokens.store_first_token(harness.plane, "tenure_first")
    caller = await tokens.authenticate(harness.plane, "tenure_first")
    assert caller == Caller("default", "admin", Role.ADMIN)
    assert len(await harness.rows(TokenRecord)) == 1
    (line,) = await audit.list_audit(harness.plane, caller)
    assert (line.action, line.principal) == ("token.create", "tenure up")
    assert line.body["role"] == "admin"


@agent_test
async def test_another_tenants_token_is_as_absent_as_one_that_never_was(harness):
    view, _ = await create(harness)
    for token_id in (view.id, "never"):
        with pytest.raises(NotFound) as refused:
            await tokens.revoke_token(harness.plane, STRANGER, token_id)
        assert str(refused.value) == f"there is no token {token_id}"


@agent_test
async def test_the_planes_own_admin_hands_out_lists_and_revokes_tokens_of_any_tenant(harness):
    plane, admin = harness.plane, Caller(tokens.PLANE_TENANT, "root", Role.ADMIN)
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
