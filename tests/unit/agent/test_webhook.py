"""Signatures: what was signed is verified, and nothing else is; both ends are written apart."""

import pytest

from tenure.adapters.bus.webhook import signature_headers
from tenure.app.events.subscriptions import secret_text
from tenure_agent import InvalidWebhook, verify
from tests.unit.support.webhook_secrets import secret_of

KEY, OTHER = b"k" * 32, b"o" * 32
BODY, AT = b'{"a": 1}', 1_700_000_000.0


def headers(*keys):
    return signature_headers("e-1", BODY, at=AT, secrets=keys or (KEY,))


def test_what_was_signed_is_verified():
    assert verify(headers(), BODY, secret_text(KEY), now=AT + 299) == "e-1"
    shouted = {name.upper(): value for name, value in headers().items()}
    assert verify(shouted, BODY, secret_text(KEY), now=AT) == "e-1"
    assert secret_of(secret_text(KEY)) == KEY


def test_the_published_example_of_the_scheme_verifies():
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    told = signature_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        at=1_614_265_330,
        secrets=(secret_of(secret),),
    )
    assert told["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_is_changed_either_fits():
    both = headers(OTHER, KEY)
    for key in (KEY, OTHER):
        assert verify(both, BODY, secret_text(key), now=AT) == "e-1"
    with pytest.raises(InvalidWebhook):
        verify(both, BODY, secret_text(b"x" * 32), now=AT)


@pytest.mark.parametrize(
    ("change", "body", "now"),
    [
        ({}, BODY + b" ", AT),
        ({}, b"", AT),
        ({}, BODY, AT + 301),
        ({}, BODY, AT - 301),
        ({"webhook-id": "e-2"}, BODY, AT),
        ({"webhook-id": ""}, BODY, AT),
        ({"webhook-timestamp": str(int(AT) + 1)}, BODY, AT),
        ({"webhook-timestamp": "now"}, BODY, AT),
        ({"webhook-timestamp": "9" * 400}, BODY, AT),
        ({"webhook-signature": ""}, BODY, AT),
        ({"webhook-signature": "v1,"}, BODY, AT),
        ({"webhook-signature": "v1,???? v2,AAAA"}, BODY, AT),
    ],
)
def test_anything_else_is_forged(change, body, now):
    with pytest.raises(InvalidWebhook):
        verify({**headers(), **change}, body, secret_text(KEY), now=now)
