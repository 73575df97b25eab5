"""The Temporal engine: workers in any number of processes execute operations as workflow runs."""

from tenure.adapters.engine.temporal.connection import probe, probe_workers
from tenure.adapters.engine.temporal.engine import RESTING, WORKER, TemporalEngine
from tenure.adapters.engine.temporal.queue import find_queue
from tenure.adapters.engine.temporal.settings import TemporalSettings

__all__ = [
    "RESTING",
    "WORKER",
    "TemporalEngine",
    "TemporalSettings",
    "find_queue",
    "probe",
    "probe_workers",
]
