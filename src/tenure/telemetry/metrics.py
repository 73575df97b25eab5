"""Every metric of a process, declared once: its name, its kind, its help text and its labels.

`docs/howto/observe.md` lists the same names, and a test compares the two.  Names are public: a
dashboard may depend on each.  `tenure.telemetry.counters` has what is counted between two scrapes;
`tenure.telemetry.scrape` reads it, and the store, when a scrape comes.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricKind(StrEnum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric family."""

    name: str
    """The exposed name; that of a counter ends in `_total`."""
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a metric; a histogram's is its cumulative buckets and the sum."""

    labels: tuple[str, ...]
    value: float
    buckets: tuple[tuple[str, float], ...] = ()


Samples = Mapping[Metric, Iterable[Sample]]
COUNTER, GAUGE, HISTOGRAM = MetricKind

OPERATIONS: Final = Metric("tenure_operations", GAUGE, "Open operations by state.", ("state",))
AGENTS: Final = Metric("tenure_agents", GAUGE, "Agents by state.", ("state",))
FINDINGS: Final = Metric("tenure_findings", GAUGE, "Open findings by kind.", ("kind",))

HTTP_REQUESTS: Final = Metric(
    "tenure_http_requests_total",
    COUNTER,
    "HTTP requests answered by this process.",
    ("method", "route", "status"),
)
INVOCATIONS_IN_FLIGHT: Final = Metric(
    "tenure_invocations_in_flight", GAUGE, "Invocations that this process is passing through."
)
ENGINE_UP: Final = Metric(
    "tenure_engine_up", GAUGE, "1 if the engine that executes operations can be reached, else 0."
)
STEP_SECONDS: Final = Metric(
    "tenure_step_seconds", HISTOGRAM, "Duration of steps that this process ran.", ("plan", "step")
)

RECONCILE_TICKS: Final = Metric(
    "tenure_reconcile_ticks_total", COUNTER, "Reconcile passes that succeeded.", ("reconciler",)
)
RECONCILE_FAILURES: Final = Metric(
    "tenure_reconcile_failures_total", COUNTER, "Reconcile passes that failed.", ("reconciler",)
)
RECONCILE_SEEN: Final = Metric(
    "tenure_reconcile_seen_total", COUNTER, "Objects examined by reconcilers.", ("reconciler",)
)
RECONCILE_FIXED: Final = Metric(
    "tenure_reconcile_fixed_total",
    COUNTER,
    "Discrepancies repaired by reconcilers.",
    ("reconciler",),
)
RECONCILE_SECONDS: Final = Metric(
    "tenure_reconcile_seconds_total",
    COUNTER,
    "Time spent in reconcile passes that succeeded.",
    ("reconciler",),
)
RECONCILE_LAST_SECONDS: Final = Metric(
    "tenure_reconcile_last_seconds",
    GAUGE,
    "End of the last successful pass of each reconciler, in seconds since 1970.",
    ("reconciler",),
)
RECONCILE_LEADS: Final = Metric(
    "tenure_reconcile_leads", GAUGE, "1 if the reconcilers of this process are the leader, else 0."
)

DELIVERIES: Final = Metric(
    "tenure_deliveries_total",
    COUNTER,
    "Events sent by this process, by kind of destination and its answer.",
    ("kind", "result"),
)
DELIVERY_RETRIES: Final = Metric(
    "tenure_delivery_retries_total", COUNTER, "Events sent again by this process.", ("kind",)
)
DELIVERY_SECONDS: Final = Metric(
    "tenure_delivery_seconds_total",
    COUNTER,
    "Sum of the times between the commit of an event and its delivery.",
    ("kind",),
)
DEAD_LETTERS: Final = Metric(
    "tenure_dead_letters", GAUGE, "Dead letters by kind of destination.", ("kind",)
)
DESTINATIONS_FAILING: Final = Metric(
    "tenure_destinations_failing",
    GAUGE,
    "Destinations that reject events or do not answer.",
    ("kind",),
)
DELIVERY_LAG_SECONDS: Final = Metric(
    "tenure_delivery_lag_seconds",
    GAUGE,
    "Duration of the longest current outage among the destinations of this kind.",
    ("kind",),
)
EVENTS_TRIMMED: Final = Metric(
    "tenure_events_trimmed_total",
    COUNTER,
    "Events dropped from the outbox by this process, because of their age or a tenant's bound.",
    ("reason",),
)
EVENTS_MISSED: Final = Metric(
    "tenure_events_missed_total",
    COUNTER,
    "Events dropped from the outbox by this process before a destination received them.",
    ("kind",),
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""Every metric, in the order above."""


def render(samples: Samples) -> bytes:
    """Return these samples in Prometheus' text form."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 (see _family)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(samples))
    return generate_latest(registry)


class _Collector:
    """The samples as prometheus_client asks for them."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Any]:
        for metric, samples in self._samples.items():
            yield _family(metric, samples)


def _family(metric: Metric, samples: Iterable[Sample]) -> Any:  # noqa: ANN401 (a foreign type)
    from prometheus_client import core  # noqa: PLC0415 (only a process that is scraped loads it)

    family_type: Any = {
        COUNTER: core.CounterMetricFamily,
        GAUGE: core.GaugeMetricFamily,
        HISTOGRAM: core.HistogramMetricFamily,
    }[metric.kind]
    family = family_type(metric.name, metric.help, labels=metric.labels)
    for sample in samples:
        if metric.kind is HISTOGRAM:
            family.add_metric(sample.labels, sample.buckets, sample.value)
        else:
            family.add_metric(sample.labels, sample.value)
    return family
