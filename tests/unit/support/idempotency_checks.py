"""What must hold of a route that takes an Idempotency-Key; each check returns its complaints."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from tenure.faces.http.route_table import Repeat, Route
from tenure.faces.http.server import ROUTES
from tenure.ports.store import Change, Store
from tests.unit.support.api_client import Answer, FaceClient
from tests.unit.support.idempotent_requests import CASES, Subject

CONCURRENT_REQUESTS = 20
"""Equal requests at the same time."""
PROVIDER_CALLS = (("identity", "invite"), ("identity", "rotate"), ("runtime", "remove"))


def route_of(name: str) -> Route:
    """The route of the table that a case is about."""
    return next(one for one in ROUTES if f"{one.method} {one.path}" == name)


async def send(
    face: FaceClient,
    name: str,
    subject: Subject,
    key: str,
    *,
    caller: str = "admin",
    other_request: tuple[str, object] | None = None,
) -> Answer:
    """The subject's request, or another one, under this key."""
    path, body = other_request or (subject.path, subject.body)
    headers = {"idempotency-key": key}
    return await face.ask(name.split(maxsplit=1)[0], path, body, token=caller, headers=headers)


def is_same_answer(name: str, first: Answer, second: Answer) -> bool:
    """Whether a repeated request was answered with the first one's result."""
    if first.status != second.status:
        return False
    if route_of(name).repeat is Repeat.ANSWER:
        return first.body == second.body
    return bool(first.json["id"] == second.json["id"])


async def check_repeated(
    face: FaceClient, name: str, label: str, *, caller: str = "admin"
) -> list[str]:
    """The same key twice: the same answer and one effect."""
    subject = await CASES[name].prepare(face, caller, label)
    first = await send(face, name, subject, label, caller=caller)
    second = await send(face, name, subject, label, caller=caller)
    wrong = [] if first.status < 300 else [f"{name} was refused: {first.body!r}"]
    if not is_same_answer(name, first, second):
        wrong.append(f"{name} gave {first.body!r}, then {second.status} {second.body!r}")
    if (done := await subject.count()) != 1:
        wrong.append(f"{name} was done {done} times")
    if subject.other is not None:
        other = await send(face, name, subject, label, caller=caller, other_request=subject.other)
        if (other.status, other.json.get("code")) != (422, "idempotency_mismatch"):
            wrong.append(f"{name}: another request under the key gave {other.status}")
    return wrong


async def check_concurrent(face: FaceClient, name: str, label: str) -> list[str]:
    """Equal requests at the same time: one effect, and one answer for all of them."""
    subject = await CASES[name].prepare(face, "admin", label)
    asked = (send(face, name, subject, label) for _ in range(CONCURRENT_REQUESTS))
    first, *others = await asyncio.gather(*asked)
    wrong = [] if first.status < 300 else [f"{name} was refused: {first.body!r}"]
    wrong += [
        f"{name} gave {one.body!r} too" for one in others if not is_same_answer(name, first, one)
    ][:3]
    if (done := await subject.count()) != 1:
        wrong.append(f"{name} was done {done} times")
    return wrong


class RequestKilled(BaseException):
    """The process died here."""


class Deaths:
    """Kills a request at one of its commits or calls of a provider, before or after it."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.died = False

    async def pass_through(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self._die_in_turn()
        result = await call()
        self._die_in_turn()
        return result

    def _die_in_turn(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.died:
            self.died = True
            raise RequestKilled


class KillingStore:
    """A store whose commits a request may not survive."""

    def __init__(self, store: Store, deaths: Deaths) -> None:
        self._store = store
        self._deaths = deaths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, change: Change) -> Any:
        return await self._deaths.pass_through(lambda: self._store.commit(change))


@contextmanager
def killing(face: FaceClient, deaths: Deaths) -> Any:
    """Requests die as `deaths` says; the engine lives on."""
    real = face.http_state.plane
    face.http_state.plane = replace(real, store=cast(Store, KillingStore(real.store, deaths)))
    patched = []
    for provider, verb in PROVIDER_CALLS:
        target = face.providers[provider]
        call = getattr(target, verb)

        async def call_or_die(*args: Any, call: Any = call, **kwargs: Any) -> Any:
            return await deaths.pass_through(lambda: call(*args, **kwargs))

        setattr(target, verb, call_or_die)
        patched.append((target, verb))
    try:
        yield
    finally:
        face.http_state.plane = real
        for target, verb in patched:
            delattr(target, verb)


async def check_killed(face: FaceClient, name: str, label: str) -> list[str]:
    """Killed before and after each commit and provider call, and repeated: one effect."""
    wrong: list[str] = []
    for at in range(40):
        subject = await CASES[name].prepare(face, "admin", f"{label}-{at}")
        key, deaths = f"{label} {at}", Deaths(at)
        try:
            with killing(face, deaths):
                await send(face, name, subject, key)
        except RequestKilled:
            pass
        answer = await send(face, name, subject, key)
        again = await send(face, name, subject, key)
        if answer.status >= 300 or not is_same_answer(name, answer, again):
            wrong.append(f"{name}, killed at {at}: {answer.body!r}, then {again.body!r}")
        if (done := await subject.count()) != 1:
            wrong.append(f"{name}, killed at {at}, was done {done} times")
        if not deaths.died:
            return wrong if at else [f"{name} has no commit"]
    return [*wrong, f"{name} never came to an end"]
