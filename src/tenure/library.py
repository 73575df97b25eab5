"""Tenure as a library: `open_plane` opens a control plane inside your own process.

`import tenure` offers all of this; nothing else of the package is needed to write and run a plan.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from os import PathLike, fspath

from tenure.app.operations import admission, commands, reads
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.errors import Invalid, NotFound
from tenure.core.limits import PAGE_MAX
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.roles import Caller, Role
from tenure.ports.provider import Provider
from tenure.settings import Settings
from tenure.wiring import run_plane
from tenure.wiring.store import is_shared


@dataclass(frozen=True, slots=True)
class Temporal:
    """A Temporal server that executes the operations of a plane; the store keeps their records."""

    address: str = "127.0.0.1:7233"
    """Host and port of its frontend."""
    namespace: str = "default"
    queue: str = ""
    """The task queue of this plane's workers; empty: a name derived from the store."""
    tls_ca: str = ""
    """File with the CA certificates of the server. Any of these three files switches TLS on."""
    tls_certificate: str = ""
    tls_key: str = ""
    """Files with our client certificate and its key, if the server requires one."""
    api_key: str = field(default="", repr=False)
    """Our API key, if the server requires one; it switches TLS on."""

    def settings(self) -> dict[str, str]:
        """The settings of a plane that uses it."""
        values = {f"temporal_{one.name}": getattr(self, one.name) for one in fields(self)}
        return {"engine": "temporal", **values}


class OpenPlane:
    """A control plane that is open in this process; `open_plane` makes it.

    Every method acts for one tenant, under the name of one principal. Another tenant's operation
    is NotFound.
    """

    __slots__ = ("_caller", "_plane")

    def __init__(self, plane: Plane, caller: Caller) -> None:
        self._plane = plane
        self._caller = caller

    @property
    def tenant(self) -> str:
        """The tenant for which this object acts."""
        return self._caller.tenant

    @property
    def principal(self) -> str:
        """The name under which the journal and the audit log record the calls of this object."""
        return self._caller.principal

    def acting_for(self, *, tenant: str = "", principal: str = "") -> "OpenPlane":
        """The same plane for another tenant, under another principal's name, or both.

        An empty argument keeps the current value. The call is cheap: make one for each request.
        """
        caller = _operator(tenant or self.tenant, principal or self.principal)
        return OpenPlane(self._plane, caller)

    async def start(
        self,
        plan: str,
        *,
        input: Mapping[str, object] | None = None,  # noqa: A002 (the word of a plan's author)
        agent: str = "",
        idempotency_key: str = "",
    ) -> OperationView:
        """Start an operation; when this returns, the operation is on disk and will finish.

        Args:
            plan: the name of a plan; its newest version is used.
            input: plain data for the steps (`call.input`), at most 256 KiB as JSON.
            agent: the id of the thing that the operation works on. Only one operation at a time
                works on an agent: while another one is open this raises Conflict
                `operation_in_progress`. Empty: a new id.
            idempotency_key: for a day, the same key and request return the same operation.

        Raises:
            NotFound: there is no such plan.
            Invalid: the input is not plain data.
            Conflict: another operation works on this agent, or the key was used for another
                request.
            StoreFull: the store is full.
        """
        request = OperationRequest(
            plan,
            agent,
            dict(input) if isinstance(input, Mapping) else {} if input is None else input,
            tenant=self.tenant,
            principal=self.principal,
            idempotency_key=idempotency_key,
        )
        return await admission.accept(self._plane, request)

    async def get(self, operation: str) -> OperationView:
        """The current state of the operation with this id; NotFound if there is none."""
        return await reads.get_operation(self._plane, self.tenant, operation)

    async def wait(self, operation: str, *, seconds: float = 60.0) -> OperationView:
        """The operation once it has ended or is STUCK, or its state after so many seconds.

        A timeout raises nothing: check `state` of the result.
        """
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise Invalid(f"seconds must be a number of at least 0, not {seconds!r}")
        return await reads.wait(self._plane, self.tenant, operation, seconds=seconds)

    async def list(
        self,
        *,
        states: Sequence[OperationState | str] = (),
        agent: str = "",
        after: str = "",
        limit: int = 100,
    ) -> tuple[OperationView, ...]:
        """A page of operations, oldest first.

        Args:
            states: only operations in one of these states; empty: in any.
            agent: only operations on this agent; empty: on any.
            after: the id of the last operation of the previous page; empty: the first page.
            limit: the maximum of operations on a page, 1 to 1000.
        """
        if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
            raise Invalid(f"limit must be a whole number from 1 to {PAGE_MAX}, not {limit!r}")
        rows = await reads.list_operations(
            self._plane, self.tenant, states=states, agent=agent, after=after, limit=limit
        )
        found = [await self._find(row.id) for row in rows]
        return tuple(operation for operation in found if operation is not None)

    async def signal(
        self, operation: str, *, name: str, payload: object = None, idempotency_key: str = ""
    ) -> OperationView:
        """Deliver a signal; an early signal is stored until a step waits for it.

        Args:
            operation: the id of an open operation.
            name: the name that a step waits for: `Waiting(name)`.
            payload: plain data for the steps; `call.signals[name]` has all payloads, oldest first.
            idempotency_key: for a day, the same key and request deliver one signal.

        Raises:
            Conflict: the operation has ended, or the key was used for another request.
        """
        return await commands.signal(
            self._plane,
            self._caller,
            operation,
            name=name,
            payload=payload,
            idempotency_key=idempotency_key,
        )

    async def cancel(self, operation: str, *, idempotency_key: str = "") -> OperationView:
        """Undo the operation; Conflict `past_pivot` after the pivot, `ended` after its end.

        This returns when the decision is on disk; `wait` returns when everything is undone.
        """
        return await commands.cancel(
            self._plane, self._caller, operation, idempotency_key=idempotency_key
        )

    async def retry(self, operation: str, *, idempotency_key: str = "") -> OperationView:
        """Retry the stuck steps now, with a new deadline; Conflict if none is stuck."""
        return await commands.retry(
            self._plane, self._caller, operation, idempotency_key=idempotency_key
        )

    async def adopt(
        self, operation: str, *, step: str, result: object = None, idempotency_key: str = ""
    ) -> OperationView:
        """Declare a stuck step as done, with this result, because you know that it happened."""
        return await commands.adopt(
            self._plane,
            self._caller,
            operation,
            step=step,
            result=result,
            idempotency_key=idempotency_key,
        )

    async def mark_absent(
        self, operation: str, *, step: str, idempotency_key: str = ""
    ) -> OperationView:
        """Declare that a stuck step holds nothing, because you know that it left no effect.

        A step that was being done is done again; a step that was being undone counts as undone.
        """
        return await commands.mark_absent(
            self._plane, self._caller, operation, step=step, idempotency_key=idempotency_key
        )

    async def abandon(self, operation: str, *, idempotency_key: str = "") -> OperationView:
        """End a stuck operation without undoing it.

        `left` of the result has the steps that still hold something.
        """
        return await commands.abandon(
            self._plane, self._caller, operation, idempotency_key=idempotency_key
        )

    async def _find(self, operation: str) -> OperationView | None:
        try:
            return await self.get(operation)
        except NotFound:  # retention has removed it since it was listed
            return None


@asynccontextmanager
async def open_plane(
    store: str | PathLike[str] = "tenure.db",
    *,
    plans: Iterable[Plan],
    providers: Mapping[str, Provider] | None = None,
    tenant: str = "default",
    principal: str = "local",
    name: str = "local",
    execute_operations: bool = True,
    concurrency_max: int = 2_000,
    temporal: Temporal | None = None,
) -> AsyncIterator[OpenPlane]:
    """Open a control plane in this process: `async with tenure.open_plane(…) as plane:`.

    When the block starts, every operation that an earlier process left open continues. When the
    block ends, calls in progress have ten seconds to finish; open operations continue when the
    plane is opened again.

    Args:
        store: a file, which is created if it does not exist and which only one process at a time
            can open; or a `postgresql://` URL, which any number of processes share (`pip install
            tenure[postgres]`).
        plans: the plans that can be started, and the plans of all open operations.
        providers: your providers, by the names that `provided` and `call.providers` use.
        tenant: the tenant for which the methods act; see `OpenPlane.acting_for`.
        principal: the name under which the journal and the audit log record the calls.
        name: the name of this control plane. It is part of every resource's key and must never
            change for a store.
        execute_operations: False: this process only starts and reads operations, and other
            processes on the same PostgreSQL execute them.
        concurrency_max: how many operations are executed at the same time; others wait.
        temporal: the Temporal server that executes operations, on a PostgreSQL store (`pip install
            tenure[postgres,temporal]`); None: the plane executes them itself.

    Raises:
        Invalid: a plan or provider is missing, a plan names a subject, which only plans of an
            agent plane may do, the store has another name, or the store is a file and
            `execute_operations` is False or `temporal` is given.
        StoreError: the store cannot be used, and the text says why; StoreLocked if another
            process has the file open. Nothing was changed.
        EngineError: Temporal cannot be reached or used. Nothing was changed.
        CommitUnknown: the disk failed during a commit; this can be raised at any time in the
            block. End the process; the next one reads from disk whether the commit is there.
    """
    if isinstance(plans, Plan):
        raise Invalid("plans must be a list: write plans=[plan] for a single plan")
    plans = list(plans)
    if not all(isinstance(plan, Plan) for plan in plans):
        raise Invalid("plans must contain nothing but tenure.Plan objects")
    caller = _operator(tenant, principal)
    admission.validate_name("plane", name)
    settings = Settings(
        store=fspath(store),
        plane=name,
        executes_operations=execute_operations,
        concurrency_max=concurrency_max,
    )
    _refuse_for_file(settings, temporal)
    if temporal is not None:
        settings = replace(settings, **temporal.settings())  # type: ignore[arg-type]
    async with run_plane(settings, plans=plans, providers=providers or {}, subjects={}) as plane:
        yield OpenPlane(plane, caller)


def _refuse_for_file(settings: Settings, temporal: Temporal | None) -> None:
    """Refuse the arguments that need a store that several processes share."""
    if is_shared(settings):
        return
    if temporal is not None:
        raise Invalid("temporal= needs a PostgreSQL store: open_plane('postgresql://…', …)")
    if not settings.executes_operations:
        message = (
            "execute_operations=False needs a PostgreSQL store: only one process can open a file,"
            " so no other process would execute its operations"
        )
        raise Invalid(message)


def _operator(tenant: str, principal: str) -> Caller:
    """A caller with the role that this module needs; Invalid if a name is malformed."""
    admission.validate_name("tenant", tenant)
    admission.validate_name("principal", principal)
    return Caller(tenant, principal, Role.OPERATOR)
