"""Roles: each may do what those before it may."""

import itertools

import pytest

from tenure.core.roles import Role


@pytest.mark.parametrize(("has", "needed_role"), list(itertools.product(Role, repeat=2)))
def test_a_role_may_what_the_lesser_ones_may_and_no_more(has, needed_role):
    order = [Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN]
    assert has.may(needed_role) == (order.index(has) >= order.index(needed_role))
