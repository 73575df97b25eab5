"""Reaches Temporal within a bound, or says in one sentence why not and what to do."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType, NamespaceState, TaskQueueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from tenure.adapters.engine.temporal.payloads import CONVERTER
from tenure.adapters.engine.temporal.settings import TemporalSettings
from tenure.core.errors import EngineError

log = logging.getLogger("tenure.engine")
AGENT = SearchAttributeKey.for_keyword("TenureAgent")
KIND = SearchAttributeKey.for_keyword("TenureKind")
STATE = SearchAttributeKey.for_keyword("TenureState")
NAME = SearchAttributeKey.for_keyword("TenureName")
NAMES = (AGENT.name, KIND.name, STATE.name, NAME.name)
CAUSE_MAX = 300
STARTING_SECONDS = 0.2
"""Between two attempts at a server that says that it is not healthy yet."""
ASKING_SECONDS = 70.0
"""Who has not asked for work for so long is gone: an idle worker asks anew each minute."""
DENIED = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED})
_DENIED = re.compile(r'code: (?:PermissionDenied|Unauthenticated), message: "([^"]*)')
"""How the library says the same of the first call of a connection."""
_QUOTED = re.compile(r'(?:message|error): "((?:[^"\\]|\\.)+)"')
_NAMED = re.compile(r"error: (Invalid\w+)\((\w+)")
"""How the library ends a chain of causes: in somebody's words, or in a name."""
NAMED = {
    "UnknownIssuer": "nobody it trusts has signed the server's certificate",
    "NotValidForNameContext": "the server's certificate is for another name",
    "InvalidContentType": "what answers there does not speak TLS",
}


async def connect(settings: TemporalSettings) -> Client:
    """A client whose namespace has answered."""
    tls = _tls(settings)
    try:
        async with asyncio.timeout(settings.connect_seconds):
            client = await _client(settings, tls=tls)
            request = DescribeNamespaceRequest(namespace=settings.namespace)
            await client.workflow_service.describe_namespace(request)
    except TimeoutError:
        message = f"it did not answer within {settings.connect_seconds:g} s"
        raise EngineError(_unreachable(settings, message)) from None
    except RPCError as error:
        raise EngineError(_refused(settings, error)) from None
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(_unreachable(settings, str(error))) from None
    return client


async def _client(settings: TemporalSettings, *, tls: TLSConfig | bool) -> Client:
    """A connected client; a server that is just starting is given the time."""
    while True:
        try:
            return await Client.connect(
                settings.address,
                namespace=settings.namespace,
                api_key=settings.api_key or None,
                tls=tls,
                data_converter=CONVERTER,
                runtime=_quiet(),
            )
        except RuntimeError as error:
            if "not healthy yet" not in str(error):
                raise
            await asyncio.sleep(STARTING_SECONDS)


@cache
def _quiet() -> Runtime:
    """The library's threads, without its own lines on standard error: we say what is the matter."""
    return Runtime(telemetry=TelemetryConfig(logging=None))


def _tls(settings: TemporalSettings) -> TLSConfig | bool:
    if not settings.secured:
        return False
    return TLSConfig(
        server_root_ca_cert=_file(settings.tls_server_ca),
        domain=settings.tls_server_name or None,
        client_cert=_file(settings.tls_client_certificate),
        client_private_key=_file(settings.tls_client_key),
    )


def _file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); it is named in Temporal's settings"
        raise EngineError(message) from None


def _unreachable(settings: TemporalSettings, words: str) -> str:
    """Why there is no connection, as far as the library's words tell."""
    denied = _DENIED.search(words)
    if denied is not None:
        return _denied(settings, denied[1])
    where = f"Temporal at {settings.address} cannot be reached"
    low = words.lower()
    if "expired" in low:
        return f"{where}: a certificate has expired; renew it and start again. Nothing was changed"
    if settings.secured and "refused" not in low and "did not answer" not in low:
        return (
            f"{where} over TLS: {cause(words)}; check the server's CA, the client's certificate "
            "and key, and whether the address speaks TLS at all. Nothing was changed"
        )
    return (
        f"{where}: {cause(words)}; check the address and that its frontend runs there. "
        "Nothing was changed"
    )


def cause(words: str) -> str:
    """The end of a chain of causes, without the library's ornaments."""
    if quoted := _QUOTED.findall(words):
        words = quoted[-1].partition(": http")[0]
        return f"{words[:1].lower()}{words[1:CAUSE_MAX]}"
    if named := _NAMED.search(words):
        return NAMED.get(named[2], f"{named[1]}: {named[2]}")
    return words.strip().rstrip(".").replace("\n", " ")[-CAUSE_MAX:]


def _refused(settings: TemporalSettings, error: RPCError) -> str:
    """Why Temporal does not let us in."""
    name, where = settings.namespace, f"Temporal at {settings.address}"
    if error.status is RPCStatusCode.NOT_FOUND:
        return (
            f"{where} has no namespace {name!r}: create it (temporal operator namespace create "
            f"--namespace {name}) or name another. Nothing was changed"
        )
    if error.status in DENIED:
        return _denied(settings, error.message)
    return _unreachable(settings, error.message)


def _denied(settings: TemporalSettings, words: str) -> str:
    return (
        f"Temporal at {settings.address} does not let this client into namespace "
        f"{settings.namespace!r} ({words}): check the API key or client certificate and what it "
        "may do. Nothing was changed"
    )


async def away(client: Client, settings: TemporalSettings) -> str:
    """Why a namespace that has answered before does not now; empty: it does."""
    request = DescribeNamespaceRequest(namespace=settings.namespace)
    try:
        async with asyncio.timeout(settings.connect_seconds):
            await client.workflow_service.describe_namespace(request)
    except TimeoutError:
        return f"Temporal cannot be reached (no answer within {settings.connect_seconds:g} s)"
    except RPCError as error:
        verb = "reached" if error.status is RPCStatusCode.UNAVAILABLE else "used"
        return f"Temporal cannot be {verb} ({cause(error.message)})"
    return ""


async def register_attributes(client: Client, settings: TemporalSettings) -> bool:
    """Whether the namespace has our search attributes, adding what is missing if we may."""
    name = settings.namespace
    try:
        async with asyncio.timeout(settings.connect_seconds):
            listing = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=name)
            )
            missing = [n for n in NAMES if n not in listing.custom_attributes]
            if missing:
                kinds = dict.fromkeys(missing, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
                request = AddSearchAttributesRequest(namespace=name, search_attributes=kinds)
                await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return True
        words = error.message
    except TimeoutError:
        words = f"no answer within {settings.connect_seconds:g} s"
    else:
        return True
    attributes = " ".join(f"--name {n} --type Keyword" for n in NAMES)
    log.warning(
        "operations cannot be searched for in Temporal (%s): add its search attributes once: "
        "temporal operator search-attribute create --namespace %s %s",
        words,
        name,
        attributes,
    )
    return False


async def probe(settings: TemporalSettings) -> str:
    """What a start would find, in a sentence; an EngineError says what stands in its way.

    Nothing is changed: search attributes that are missing are left to the first start.
    """
    client = await connect(settings)
    name = settings.namespace
    asked = client.workflow_service
    async with _bounded(settings):
        told = await asked.describe_namespace(DescribeNamespaceRequest(namespace=name))
        system = await asked.get_system_info(GetSystemInfoRequest())
    where = f"Temporal at {settings.address}"
    if told.namespace_info.state != NamespaceState.NAMESPACE_STATE_REGISTERED:
        state = NamespaceState.Name(told.namespace_info.state).rpartition("_")[2].lower()
        raise EngineError(f"{where}: namespace {name!r} is {state}; name another")
    return f"Temporal {system.server_version} at {settings.address}, namespace {name!r}"


async def probe_workers(settings: TemporalSettings, now: float) -> str:
    """Who works, in a sentence; an EngineError if nobody does.

    Temporal remembers for five minutes who has asked it for work, so it is told when that was.
    """
    client = await connect(settings)
    request = DescribeTaskQueueRequest(
        namespace=settings.namespace,
        task_queue=TaskQueue(name=settings.task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    async with _bounded(settings):
        polled = await client.workflow_service.describe_task_queue(request)
    seen: dict[str, float] = {}
    for one in polled.pollers:
        at = one.last_access_time.seconds + one.last_access_time.nanos / 1e9
        seen[one.identity] = max(at, seen.get(one.identity, 0.0))
    here = [now - at for at in seen.values() if now - at <= ASKING_SECONDS]
    queue, last = f"task queue {settings.task_queue!r}", max(seen.values(), default=0.0)
    if here:
        many = "1 worker asks" if len(here) == 1 else f"{len(here)} workers ask"
        return f"{many} for work at {queue}, the last {max(0.0, min(here)):.0f} s ago"
    since = f" since {datetime.fromtimestamp(last, UTC):%H:%M:%S} UTC" if seen else ""
    raise EngineError(f"no worker has asked for work at {queue}{since}: what is accepted waits")


@asynccontextmanager
async def _bounded(settings: TemporalSettings) -> AsyncIterator[None]:
    """What Temporal does not answer, or refuses, is an EngineError with a sentence."""
    try:
        async with asyncio.timeout(settings.connect_seconds):
            yield
    except TimeoutError:
        message = f"it did not answer within {settings.connect_seconds:g} s"
        raise EngineError(_unreachable(settings, message)) from None
    except RPCError as error:
        raise EngineError(_refused(settings, error)) from None
