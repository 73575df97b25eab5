"""Endings: how a call ends, and the words that are kept of it."""

from tenure.core.endings import Absent, Done, NotYet, Waiting, message_of
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import DETAIL_CHARACTERS_MAX


def test_the_providers_own_words_are_kept():
    assert message_of(NotYet(1.0, "pulling")) == "pulling"
    assert message_of(Waiting("go", "asked them")) == "asked them"
    for trouble in (Rejected, Unavailable, OutcomeUnknown):
        assert message_of(trouble("no room")) == "no room"


def test_an_answer_without_words_has_none():
    assert message_of(Done({"secret": 1})) == message_of(Absent()) == ""


def test_long_words_are_cut():
    assert len(message_of(Rejected("x" * 10_000))) == DETAIL_CHARACTERS_MAX
