"""Collects the metrics of one scrape from the process's counters and from the store.

Agents, operations and findings are counted for the tenant of the token.  Only admins of the plane's
own tenant see the metrics of the process as a whole.
"""

from collections.abc import Iterable, Mapping
from itertools import product

from tenure.app.events.deliveries import KINDS, RESULTS, TRIM_REASONS, read_backlog
from tenure.app.plane import Plane
from tenure.app.safety.findings import count_open
from tenure.app.tenancy.tokens import PLANE_TENANT
from tenure.core import agent
from tenure.core.operation import OPERATION, OperationState
from tenure.telemetry import metrics
from tenure.telemetry.counters import StepTimes
from tenure.telemetry.metrics import Metric, Sample

OPERATION_STATES = tuple(str(state) for state in OperationState if state not in OPERATION.final)
"""The states of open operations; ended ones are not counted, because their number only grows."""
AGENT_STATES = tuple(str(state) for state in agent.AgentState if state not in agent.AGENT.final)
Requests = Mapping[tuple[str, str, int], int]
"""Answers by method, route and status."""
Families = dict[Metric, Iterable[Sample]]


async def exposition(
    plane: Plane, tenant: str, *, step_times: StepTimes, requests: Requests
) -> bytes:
    """Return the metrics that this tenant may see, in Prometheus' text form."""
    families = await _tenant_families(plane, tenant)
    if tenant == PLANE_TENANT:
        families |= _process_families(plane, step_times, requests)
        families |= _reconcile_families(plane)
        families |= await _delivery_families(plane)
    return metrics.render(families)


async def _tenant_families(plane: Plane, tenant: str) -> Families:
    found = await plane.store.count_states(tenant)
    return {
        metrics.OPERATIONS: [
            Sample((state,), found.get(("operation", state), 0))
            for state in sorted(OPERATION_STATES)
        ],
        metrics.AGENTS: [
            Sample((state,), found.get(("agent", state), 0)) for state in sorted(AGENT_STATES)
        ],
        metrics.FINDINGS: [
            Sample((kind,), count)
            for kind, count in sorted((await count_open(plane, tenant)).items())
        ],
    }


def _process_families(plane: Plane, step_times: StepTimes, requests: Requests) -> Families:
    return {
        metrics.HTTP_REQUESTS: [
            Sample((method, route, str(status)), count)
            for (method, route, status), count in sorted(requests.items())
        ],
        metrics.ENGINE_UP: [Sample((), int(not plane.engine.outage))],
        metrics.INVOCATIONS_IN_FLIGHT: [Sample((), plane.in_flight.total())],
        metrics.STEP_SECONDS: [
            Sample((one.plan, one.step), one.seconds, one.buckets)
            for one in step_times.histograms()
        ],
    }


def _reconcile_families(plane: Plane) -> Families:
    counts = sorted(plane.reconcile_state.counts.items())

    def each(column: str) -> list[Sample]:
        return [Sample((name,), getattr(count, column)) for name, count in counts]

    columns = {
        metrics.RECONCILE_TICKS: "ticks",
        metrics.RECONCILE_FAILURES: "failed",
        metrics.RECONCILE_SEEN: "seen",
        metrics.RECONCILE_FIXED: "fixed",
        metrics.RECONCILE_SECONDS: "seconds",
        metrics.RECONCILE_LAST_SECONDS: "last_at",
    }
    families: Families = {metric: each(column) for metric, column in columns.items()}
    families[metrics.RECONCILE_LEADS] = [Sample((), int(plane.reconcile_state.leads))]
    return families


async def _delivery_families(plane: Plane) -> Families:
    counts, undelivered, now = plane.deliveries, await read_backlog(plane), plane.store.now()
    return {
        metrics.DELIVERIES: [
            Sample((kind, result), counts.answers[kind, result])
            for kind, result in product(KINDS, RESULTS)
        ],
        metrics.DELIVERY_RETRIES: [Sample((kind,), counts.retries[kind]) for kind in KINDS],
        metrics.DELIVERY_SECONDS: [
            Sample((kind,), counts.seconds.get(kind, 0.0)) for kind in KINDS
        ],
        metrics.DEAD_LETTERS: [Sample((kind,), one.letters) for kind, one in undelivered.items()],
        metrics.DESTINATIONS_FAILING: [
            Sample((kind,), one.failing) for kind, one in undelivered.items()
        ],
        metrics.DELIVERY_LAG_SECONDS: [
            Sample((kind,), 0.0 if one.since is None else max(0.0, now - one.since))
            for kind, one in undelivered.items()
        ],
        metrics.EVENTS_TRIMMED: [
            Sample((reason,), counts.trimmed[reason]) for reason in TRIM_REASONS
        ],
        metrics.EVENTS_MISSED: [Sample((kind,), counts.missed[kind]) for kind in KINDS],
    }
