"""Connects to Temporal and probes it; an EngineError says the reason and the remedy."""

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
ATTRIBUTE_NAMES = (AGENT.name, KIND.name, STATE.name, NAME.name)
CAUSE_CHARACTERS_MAX = 300
CONNECT_RETRY_SECONDS = 0.2
"""Interval of connection attempts to a server that is not healthy yet."""
POLLER_TTL_SECONDS = 70.0
"""A worker that has not polled for this long is gone: an idle worker polls once a minute."""
DENIED = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED})
_DENIED = re.compile(r'code: (?:PermissionDenied|Unauthenticated), message: "([^"]*)')
"""The library's text for a denial of the first call of a connection."""
_QUOTED_CAUSE = re.compile(r'(?:message|error): "((?:[^"\\]|\\.)+)"')
_ERROR_NAME = re.compile(r"error: (Invalid\w+)\((\w+)")
"""The library's text ends with the root cause: a quoted message, or the name of an error."""
ERROR_TEXTS = {
    "UnknownIssuer": "the server's certificate is not signed by a trusted CA",
    "NotValidForNameContext": "the server's certificate is for another name",
    "InvalidContentType": "the server does not speak TLS",
}


async def connect(settings: TemporalSettings) -> Client:
    """Return a client whose namespace has answered."""
    tls = _tls_config(settings)
    try:
        async with asyncio.timeout(settings.connect_seconds):
            client = await _connect_client(settings, tls=tls)
            request = DescribeNamespaceRequest(namespace=settings.namespace)
            await client.workflow_service.describe_namespace(request)
    except TimeoutError:
        message = f"it did not answer within {settings.connect_seconds:g} s"
        raise EngineError(_describe_unreachable(settings, message)) from None
    except RPCError as error:
        raise EngineError(_describe_refusal(settings, error)) from None
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineError(_describe_unreachable(settings, str(error))) from None
    return client


async def _connect_client(settings: TemporalSettings, *, tls: TLSConfig | bool) -> Client:
    """Return a connected client; wait for a server that is starting."""
    while True:
        try:
            return await Client.connect(
                settings.address,
                namespace=settings.namespace,
                api_key=settings.api_key or None,
                tls=tls,
                data_converter=CONVERTER,
                runtime=_silent_runtime(),
            )
        except RuntimeError as error:
            if "not healthy yet" not in str(error):
                raise
            await asyncio.sleep(CONNECT_RETRY_SECONDS)


@cache
def _silent_runtime() -> Runtime:
    """The library's threads without its own log on standard error; this module reports errors."""
    return Runtime(telemetry=TelemetryConfig(logging=None))


def _tls_config(settings: TemporalSettings) -> TLSConfig | bool:
    if not settings.uses_tls:
        return False
    return TLSConfig(
        server_root_ca_cert=_read_file(settings.tls_server_ca),
        domain=settings.tls_server_name or None,
        client_cert=_read_file(settings.tls_client_certificate),
        client_private_key=_read_file(settings.tls_client_key),
    )


def _read_file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); it is named in Temporal's settings"
        raise EngineError(message) from None


def _describe_unreachable(settings: TemporalSettings, text: str) -> str:
    """Why there is no connection, as far as the library's error text tells."""
    denied = _DENIED.search(text)
    if denied is not None:
        return _describe_denied(settings, denied[1])
    where = f"Temporal at {settings.address} cannot be reached"
    lowered = text.lower()
    if "expired" in lowered:
        return f"{where}: a certificate has expired; renew it and start again. Nothing was changed"
    if settings.uses_tls and "refused" not in lowered and "did not answer" not in lowered:
        return (
            f"{where} over TLS: {root_cause(text)}; check the server's CA, the client's "
            "certificate and key, and whether the address speaks TLS at all. Nothing was changed"
        )
    return (
        f"{where}: {root_cause(text)}; check the address and that its frontend runs there. "
        "Nothing was changed"
    )


def root_cause(text: str) -> str:
    """Return the root cause in one of the library's error texts."""
    if quoted := _QUOTED_CAUSE.findall(text):
        text = quoted[-1].partition(": http")[0]
        return f"{text[:1].lower()}{text[1:CAUSE_CHARACTERS_MAX]}"
    if name := _ERROR_NAME.search(text):
        return ERROR_TEXTS.get(name[2], f"{name[1]}: {name[2]}")
    return text.strip().rstrip(".").replace("\n", " ")[-CAUSE_CHARACTERS_MAX:]


def _describe_refusal(settings: TemporalSettings, error: RPCError) -> str:
    """Why Temporal refuses the namespace."""
    name, where = settings.namespace, f"Temporal at {settings.address}"
    if error.status is RPCStatusCode.NOT_FOUND:
        return (
            f"{where} has no namespace {name!r}: create it (temporal operator namespace create "
            f"--namespace {name}) or name another. Nothing was changed"
        )
    if error.status in DENIED:
        return _describe_denied(settings, error.message)
    return _describe_unreachable(settings, error.message)


def _describe_denied(settings: TemporalSettings, message: str) -> str:
    return (
        f"Temporal at {settings.address} does not let this client into namespace "
        f"{settings.namespace!r} ({message}): check the API key or client certificate and what it "
        "may do. Nothing was changed"
    )


async def find_outage(client: Client, settings: TemporalSettings) -> str:
    """Return why the namespace cannot be used now; empty: it can."""
    request = DescribeNamespaceRequest(namespace=settings.namespace)
    try:
        async with asyncio.timeout(settings.connect_seconds):
            await client.workflow_service.describe_namespace(request)
    except TimeoutError:
        return f"Temporal cannot be reached (no answer within {settings.connect_seconds:g} s)"
    except RPCError as error:
        verb = "reached" if error.status is RPCStatusCode.UNAVAILABLE else "used"
        return f"Temporal cannot be {verb} ({root_cause(error.message)})"
    return ""


async def register_attributes(client: Client, settings: TemporalSettings) -> bool:
    """Add missing search attributes if we may; return whether the namespace has all of them."""
    name = settings.namespace
    try:
        async with asyncio.timeout(settings.connect_seconds):
            listing = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=name)
            )
            missing = [n for n in ATTRIBUTE_NAMES if n not in listing.custom_attributes]
            if missing:
                kinds = dict.fromkeys(missing, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
                request = AddSearchAttributesRequest(namespace=name, search_attributes=kinds)
                await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return True
        problem = error.message
    except TimeoutError:
        problem = f"no answer within {settings.connect_seconds:g} s"
    else:
        return True
    attributes = " ".join(f"--name {n} --type Keyword" for n in ATTRIBUTE_NAMES)
    log.warning(
        "operations cannot be searched for in Temporal (%s): add its search attributes once: "
        "temporal operator search-attribute create --namespace %s %s",
        problem,
        name,
        attributes,
    )
    return False


async def probe(settings: TemporalSettings) -> str:
    """Describe the server in a sentence; EngineError with the reason if it cannot be used.

    Nothing is changed: missing search attributes are added by the first start.
    """
    client = await connect(settings)
    name = settings.namespace
    service = client.workflow_service
    async with _rpc_errors(settings):
        description = await service.describe_namespace(DescribeNamespaceRequest(namespace=name))
        system = await service.get_system_info(GetSystemInfoRequest())
    where = f"Temporal at {settings.address}"
    if description.namespace_info.state != NamespaceState.NAMESPACE_STATE_REGISTERED:
        state = NamespaceState.Name(description.namespace_info.state).rpartition("_")[2].lower()
        raise EngineError(f"{where}: namespace {name!r} is {state}; name another")
    return f"Temporal {system.server_version} at {settings.address}, namespace {name!r}"


async def probe_workers(settings: TemporalSettings, now: float) -> str:
    """Describe the live workers in a sentence; EngineError if there is none.

    Temporal lists the pollers of the last five minutes, so their last access times are compared.
    """
    client = await connect(settings)
    request = DescribeTaskQueueRequest(
        namespace=settings.namespace,
        task_queue=TaskQueue(name=settings.task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    async with _rpc_errors(settings):
        queue_info = await client.workflow_service.describe_task_queue(request)
    last_polls: dict[str, float] = {}
    for poller in queue_info.pollers:
        at = poller.last_access_time.seconds + poller.last_access_time.nanos / 1e9
        last_polls[poller.identity] = max(at, last_polls.get(poller.identity, 0.0))
    ages = [now - at for at in last_polls.values() if now - at <= POLLER_TTL_SECONDS]
    queue, last = f"task queue {settings.task_queue!r}", max(last_polls.values(), default=0.0)
    if ages:
        many = "1 worker asks" if len(ages) == 1 else f"{len(ages)} workers ask"
        return f"{many} for work at {queue}, the last {max(0.0, min(ages)):.0f} s ago"
    since = f" since {datetime.fromtimestamp(last, UTC):%H:%M:%S} UTC" if last_polls else ""
    raise EngineError(f"no worker has asked for work at {queue}{since}: accepted operations wait")


@asynccontextmanager
async def _rpc_errors(settings: TemporalSettings) -> AsyncIterator[None]:
    """Convert timeouts and refusals of Temporal to EngineError."""
    try:
        async with asyncio.timeout(settings.connect_seconds):
            yield
    except TimeoutError:
        message = f"it did not answer within {settings.connect_seconds:g} s"
        raise EngineError(_describe_unreachable(settings, message)) from None
    except RPCError as error:
        raise EngineError(_describe_refusal(settings, error)) from None
