"""Our messages in Temporal: what its own converter writes we read, and the other way round."""

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from tenure.adapters.engine.temporal.messages import Answer, Due, Start, Task
from tenure.adapters.engine.temporal.payloads import CONVERTER
from tenure.core.operation import OperationState

ANSWER = Answer(
    OperationState.RUNNING,
    2,
    7,
    [Due("identity", "do", 2)],
    1.5,
    [Due("identity", "inspect", 2)],
    look=True,
)
MESSAGES = [
    (Answer("", 0), Answer),
    (ANSWER, Answer),
    (Start("o", "linear of ä", ANSWER), Start),
    (Start("o"), Start),
    (Task("o", 1, "identity", "undo", 3, "run/7/1"), Task),
    (True, bool),
    ("SUCCEEDED", str),
    (None, None),
]


@pytest.mark.parametrize(("message", "hint"), MESSAGES, ids=repr)
def test_both_converters_read_what_either_writes(message, hint):
    ours, theirs = CONVERTER.payload_converter, PayloadConverter.default
    hints = None if hint is None else [hint]
    for writer, reader in ((ours, theirs), (theirs, ours), (ours, ours)):
        assert reader.from_payloads(writer.to_payloads([message]), hints) == [message]


def test_the_bytes_are_those_that_temporals_own_converter_writes():
    ours, theirs = CONVERTER.payload_converter, PayloadConverter.default
    for message, _ in MESSAGES:
        if "ä" not in repr(message):  # it writes that as an escape
            assert ours.to_payload(message) == theirs.to_payload(message)


def test_a_message_of_a_later_release_reads_without_what_is_new_in_it():
    data = b'{"operation":"o","token":1,"later":[1]}'
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    assert CONVERTER.payload_converter.from_payload(payload, Task) == Task("o", 1)


def test_what_is_no_such_message_is_refused_as_temporal_expects():
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'{"operation":1}')
    with pytest.raises(RuntimeError):
        CONVERTER.payload_converter.from_payload(payload, Task)


def test_without_a_type_it_is_plain_data():
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'{"a":[1,null]}')
    assert CONVERTER.payload_converter.from_payload(payload) == {"a": [1, None]}
