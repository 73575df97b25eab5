"""Metrics: each is declared once, documented, and exposed under its name."""

import re
from pathlib import Path

import pytest

from tenure.telemetry import metrics
from tenure.telemetry.metrics import METRICS, MetricKind, Sample

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "observe.md"
SRC = Path(metrics.__file__).parents[1]


def test_the_page_lists_every_metric_with_its_labels_and_no_other():
    listed = re.findall(r"`(tenure_\w+)(?:\{([\w,]+)\})?`", PAGE.read_text(encoding="utf-8"))
    rows = {(name, tuple(labels.split(",")) if labels else ()) for name, labels in listed}
    assert rows == {(one.name, one.labels) for one in METRICS}


def test_no_two_metrics_share_a_name_and_only_counters_end_in_total():
    assert len({one.name for one in METRICS}) == len(METRICS)
    for one in METRICS:
        assert one.name.endswith("_total") == (one.kind is MetricKind.COUNTER), one.name


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_a_metric_is_exposed_under_its_name_with_its_help_and_labels(metric):
    buckets = (("1.0", 1.0), ("+Inf", 2.0)) if metric.kind is MetricKind.HISTOGRAM else ()
    labels = tuple(f"its {label}" for label in metric.labels)
    text = metrics.render({metric: [Sample(labels, 7.0, buckets)]}).decode()
    assert f"# HELP {metric.name} {metric.help}\n" in text
    assert f"# TYPE {metric.name} {metric.kind}\n" in text
    shown = ",".join(f'{label}="its {label}"' for label in metric.labels)
    sample = f"{metric.name}_sum" if buckets else metric.name
    assert f"{sample}{{{shown}}} 7.0\n" in text or f"{sample} 7.0\n" in text


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_the_help_of_a_metric_is_one_sentence(metric):
    assert re.fullmatch(r"[A-Z0-9][^.]*\.", metric.help)


def test_the_name_of_a_metric_stands_in_one_module_alone():
    names = re.compile("|".join(rf'"{one.name}"' for one in METRICS))
    holders = {
        str(path.relative_to(SRC)) for path in SRC.rglob("*.py") if names.search(path.read_text())
    }
    assert holders == {"telemetry/metrics.py"}
