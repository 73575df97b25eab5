"""Roles: each may do what those before it may."""

import itertools

import pytest

from tenure.core.roles import Role


@pytest.mark.parametrize(("has", "needed"), list(itertools.product(Role, repeat=2)))
def test_a_role_may_what_the_lesser_ones_may_and_no_more(has, needed):
    order = [Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN]
    assert has.may(needed) == (order.index(has) >= order.index(needed))
