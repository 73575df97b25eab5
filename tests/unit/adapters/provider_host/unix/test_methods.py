"""The table of what may be asked: exactly what the ports promise."""

import inspect

import pytest

from tenure.adapters.provider_host.unix.methods import (
    DESCRIBED_ATTRIBUTES,
    METHODS,
    PORT_NAMES,
    PORTS,
    READ_ONLY,
    WIRE_NAMES,
)
from tenure.core.ids import resource_key
from tenure.ports.access import Grant, GrantKind
from tenure.ports.identity import Invitation, TokenRequester
from tenure.ports.provider import OwnedResource
from tenure.ports.runtime import Status

KEY = resource_key("p", tenant="t", agent="a", generation=1, slot="s", name="n")


@pytest.mark.parametrize("provider", PORTS)
def test_every_member_of_a_port_can_be_asked_or_is_presented(provider):
    promised = {
        name
        for port in PORTS[provider]
        for name in dir(port)
        if not name.startswith("_")
        and (inspect.isfunction(getattr(port, name)) or isinstance(getattr(port, name), property))
    }
    assert promised == {*METHODS[provider], *DESCRIBED_ATTRIBUTES.get(provider, ())}


def test_what_cannot_wait_is_presented():
    def is_waited_for(provider: str, name: str) -> bool:
        members = [dict(inspect.getmembers(port, inspect.isfunction)) for port in PORTS[provider]]
        found = next(one[name] for one in members if name in one)
        return inspect.iscoroutinefunction(found)

    for provider, methods in METHODS.items():
        for method in methods.values():
            assert is_waited_for(provider, method.name) is not method.is_listing


def test_every_word_for_reading_is_of_a_method():
    assert {name for methods in METHODS.values() for name in methods} >= READ_ONLY


def test_records_are_made_records_again_and_the_rest_is_left_as_it_came():
    page = METHODS["access"]["list_by_subject"]
    grant = Grant("a", "k", GrantKind.ROLE, "reader", "ann", 1.5)
    said = page.bind(("t", "a"), {"after": grant})
    assert said == {"tenant": "t", "subject": "a", "after": grant}
    travelled = {**said, "after": ["a", "k", "role", "reader", "ann", 1.5]}
    restored = page.decode(travelled)
    assert restored == said
    assert restored["after"].kind is GrantKind.ROLE
    assert page.decode({"tenant": 7, "after": None}) == {"tenant": 7, "after": None}
    ensure = METHODS["access"]["ensure"]
    assert ensure.decode({"key": [*KEY], "spec": [1]}) == {"key": KEY, "spec": [1]}


def test_the_answers_have_their_types():
    assert METHODS["runtime"]["list_owned"].answer == list[OwnedResource]
    assert METHODS["identity"]["invite"].answer is Invitation
    assert METHODS["identity"]["authenticate"].answer is TokenRequester
    assert METHODS["runtime"]["status"].answer is Status


def test_messages_have_the_names_that_older_builds_know():
    introspect = METHODS["identity"]["introspect"]
    message = introspect.bind(("token",), {"requester": TokenRequester("t")})
    assert message == {"token": "token", "asker": TokenRequester("t")}
    assert introspect.decode({**message, "asker": ["t"]}) == {
        "token": "token",
        "requester": TokenRequester("t"),
    }
    assert WIRE_NAMES.keys() >= {"grant_team_role", "revoke_team_role"}
    assert PORT_NAMES.keys() == {"give_team", "take_from_team", "asker"}
