"""Metrics in Prometheus' text form, counted when they are asked for.

The hot path adds one to a plain counter; everything else is read at the scrape.  What is counted of
agents and operations is counted for the tenant whose token asks; what is counted of the process as
a whole is told to admins of the plane's own tenant alone.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from tenure.app.events.deliveries import KINDS, RESULTS, Left, left
from tenure.app.plane import count_states
from tenure.app.safety.findings import count_open
from tenure.app.tenancy.tokens import TENANT
from tenure.core import agent
from tenure.core.operation import OPERATION, OperationState
from tenure.faces.api.state import Api

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
OPEN = tuple(str(state) for state in OperationState if state not in OPERATION.final)
"""What is counted: what has ended grows for ever, and is told by events."""


THERE = tuple(str(state) for state in agent.AgentState if state not in agent.AGENT.final)


class _Scrape:
    """One scrape, as the client library wants it."""

    def __init__(
        self,
        api: Api,
        gauges: Mapping[str, tuple[str, Mapping[str, int]]],
        left: Mapping[str, Left] | None,
    ) -> None:
        """`left` is what destinations have not taken; None: only what is a tenant's is told."""
        self._api = api
        self._gauges = gauges
        self._left = left

    def collect(self) -> Iterable[Any]:
        """Every family."""
        from prometheus_client import core  # noqa: PLC0415 (only whoever scrapes pays for it)

        for name, (help_text, counts) in self._gauges.items():
            label = "kind" if name == "tenure_findings" else "state"
            family = core.GaugeMetricFamily(name, help_text, labels=[label])
            for state, count in sorted(counts.items()):
                family.add_metric([state], count)
            yield family
        if self._left is None:
            return
        requests = core.CounterMetricFamily(
            "tenure_http_requests", "Answers of the HTTP face.",
            labels=["method", "route", "status"],
        )  # fmt: skip
        for (method, route, status), count in sorted(self._api.requests.items()):
            requests.add_metric([method, route, str(status)], count)
        yield requests
        yield core.GaugeMetricFamily(
            "tenure_engine_up", "Whether what moves operations can be reached.",
            value=int(not self._api.plane.engine.away),
        )  # fmt: skip
        yield core.GaugeMetricFamily(
            "tenure_invocations_in_flight", "Invocations under way.",
            value=self._api.plane.in_flight.total(),
        )  # fmt: skip
        steps = core.HistogramMetricFamily(
            "tenure_step_seconds", "How long steps took.", labels=["plan", "step"]
        )
        for plan, step, buckets, seconds in self._api.step_times.told():
            steps.add_metric([plan, step], buckets, seconds)
        yield steps
        yield from _ticks(self._api)
        yield from _deliveries(self._api)
        yield from _undelivered(self._left, self._api.plane.store.now())


def _ticks(api: Api) -> Iterable[Any]:
    """What reconcilers have come to in this process."""
    from prometheus_client import core  # noqa: PLC0415 (as above)

    told = {
        "tenure_reconcile_ticks": ("Looks of reconcilers.", "ticks"),
        "tenure_reconcile_failures": ("Looks that came to nothing.", "failed"),
        "tenure_reconcile_seen": ("What reconcilers have looked at.", "seen"),
        "tenure_reconcile_fixed": ("What reconcilers have put right.", "fixed"),
        "tenure_reconcile_seconds": ("How long looks took.", "seconds"),
    }
    for name, (help_text, column) in told.items():
        family = core.CounterMetricFamily(name, help_text, labels=["reconciler"])
        for reconciler, count in sorted(api.plane.reconciled.counts.items()):
            family.add_metric([reconciler], getattr(count, column))
        yield family
    last = core.GaugeMetricFamily(
        "tenure_reconcile_last_seconds", "When each last looked, since 1970.",
        labels=["reconciler"],
    )  # fmt: skip
    for reconciler, count in sorted(api.plane.reconciled.counts.items()):
        last.add_metric([reconciler], count.last_at)
    yield last
    leads = int(api.plane.reconciled.leads)
    yield core.GaugeMetricFamily(
        "tenure_reconcile_leads", "Whether the reconcilers of this process lead.", value=leads
    )


def _deliveries(api: Api) -> Iterable[Any]:
    """What destinations have answered to the events that this process has sent."""
    from prometheus_client import core  # noqa: PLC0415 (as above)

    counts = api.plane.deliveries
    answers = core.CounterMetricFamily(
        "tenure_deliveries", "Events sent, by what their destination answered.",
        labels=["kind", "result"],
    )  # fmt: skip
    for kind, result in product(KINDS, RESULTS):
        answers.add_metric([kind, result], counts.answers[kind, result])
    yield answers
    again = core.CounterMetricFamily(
        "tenure_delivery_retries", "Events sent again.", labels=["kind"]
    )
    seconds = core.CounterMetricFamily(
        "tenure_delivery_seconds", "From their commits until events were taken.", labels=["kind"]
    )
    for kind in KINDS:
        again.add_metric([kind], counts.again[kind])
        seconds.add_metric([kind], counts.seconds.get(kind, 0.0))
    yield from (again, seconds)


def _undelivered(left: Mapping[str, Left], now: float) -> Iterable[Any]:
    """What destinations have not taken, whoever has sent it."""
    from prometheus_client import core  # noqa: PLC0415 (as above)

    letters = core.GaugeMetricFamily("tenure_dead_letters", "Dead letters.", labels=["kind"])
    failing = core.GaugeMetricFamily(
        "tenure_destinations_failing", "Destinations that do not take all.", labels=["kind"]
    )
    lag = core.GaugeMetricFamily(
        "tenure_delivery_lag_seconds", "For how long the one that lags most has not taken all.",
        labels=["kind"],
    )  # fmt: skip
    for kind, one in left.items():
        letters.add_metric([kind], one.letters)
        failing.add_metric([kind], one.failing)
        lag.add_metric([kind], 0.0 if one.since is None else max(0.0, now - one.since))
    yield from (letters, failing, lag)


async def exposition(api: Api, tenant: str) -> bytes:
    """Everything there is to scrape."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 (as above)

    found = await count_states(api.plane, tenant)
    gauges = {
        "tenure_operations": (
            "Open operations by state.", {one: found.get(("operation", one), 0) for one in OPEN}
        ),
        "tenure_agents": (
            "Agents by state.", {one: found.get(("agent", one), 0) for one in THERE}
        ),
        "tenure_findings": ("Open findings by kind.", await count_open(api.plane, tenant)),
    }  # fmt: skip
    registry = CollectorRegistry(auto_describe=False)
    undelivered = await left(api.plane) if tenant == TENANT else None
    registry.register(_Scrape(api, gauges, undelivered))
    return generate_latest(registry)
