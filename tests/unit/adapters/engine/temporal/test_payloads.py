"""Our messages in Temporal: what its own converter writes we read, and the other way round."""

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

from tenure.adapters.engine.temporal.messages import ActivityInput, Answer, DueMove, RunInput
from tenure.adapters.engine.temporal.payloads import CONVERTER
from tenure.core.operation import OperationState

ANSWER = Answer(
    OperationState.RUNNING,
    2,
    7,
    [DueMove("identity", "do", 2)],
    1.5,
    [DueMove("identity", "inspect", 2)],
    must_reload=True,
)
MESSAGES = [
    (Answer("", 0), Answer),
    (ANSWER, Answer),
    (RunInput("o", "linear of ä", ANSWER), RunInput),
    (RunInput("o"), RunInput),
    (ActivityInput("o", 1, "identity", "undo", 3, "run/7/1"), ActivityInput),
    (True, bool),
    ("SUCCEEDED", str),
    (None, None),
]


@pytest.mark.parametrize(("message", "hint"), MESSAGES, ids=repr)
def test_a_message_is_read_as_it_was_written(message, hint):
    converter = CONVERTER.payload_converter
    hints = None if hint is None else [hint]
    assert converter.from_payloads(converter.to_payloads([message]), hints) == [message]


def test_the_stored_keys_and_bytes_of_a_message_never_change():
    """The literals are what Temporal's own converter wrote in the first release."""
    answer = (
        b'{"interrupt":false,"look":true,"moves":[{"act":"do","step":"identity","token":2}],'
        b'"over":false,"revision":7,"said":"","state":"RUNNING",'
        b'"then":[{"act":"inspect","step":"identity","token":2}],"ticket":"","token":2,'
        b'"wait":1.5,"why":""}'
    )
    task = (
        b'{"act":"undo","fence":3,"operation":"o","step":"identity","ticket":"run/7/1","token":1}'
    )
    start = b'{"answer":null,"attributes":true,"operation":"o","title":""}'
    stored = [(ANSWER, answer), (MESSAGES[4][0], task), (RunInput("o"), start)]
    for message, data in stored:
        payload = CONVERTER.payload_converter.to_payload(message)
        assert payload == Payload(metadata={"encoding": b"json/plain"}, data=data)


def test_temporals_own_converter_writes_plain_data_like_ours():
    ours, theirs = CONVERTER.payload_converter, PayloadConverter.default
    for value in (True, "SUCCEEDED", {"b": [1, None], "a": "x"}):
        assert ours.to_payload(value) == theirs.to_payload(value)


def test_a_message_of_a_later_release_reads_without_what_is_new_in_it():
    data = b'{"operation":"o","token":1,"later":[1]}'
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    assert CONVERTER.payload_converter.from_payload(payload, ActivityInput) == ActivityInput("o", 1)


def test_what_is_no_such_message_is_refused_as_temporal_expects():
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'{"operation":1}')
    with pytest.raises(RuntimeError):
        CONVERTER.payload_converter.from_payload(payload, ActivityInput)


def test_without_a_type_it_is_plain_data():
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'{"a":[1,null]}')
    assert CONVERTER.payload_converter.from_payload(payload) == {"a": [1, None]}
