"""The Temporal engine: workers in any number of processes execute operations as workflow runs."""

from tenure.adapters.engine.temporal.connection import probe, probe_workers
from tenure.adapters.engine.temporal.engine import IDLE_WORKER, WORKER, TemporalEngine
from tenure.adapters.engine.temporal.queue import find_queue
from tenure.adapters.engine.temporal.settings import TemporalSettings

__all__ = [
    "IDLE_WORKER",
    "WORKER",
    "TemporalEngine",
    "TemporalSettings",
    "find_queue",
    "probe",
    "probe_workers",
]
