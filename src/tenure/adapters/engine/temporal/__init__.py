"""The Temporal engine: any number of processes move operations; Temporal says which and when."""

from tenure.adapters.engine.temporal.connection import probe, probe_workers
from tenure.adapters.engine.temporal.engine import RESTING, WORKER, TemporalEngine
from tenure.adapters.engine.temporal.queue import known_queue
from tenure.adapters.engine.temporal.settings import TemporalSettings

__all__ = [
    "RESTING",
    "WORKER",
    "TemporalEngine",
    "TemporalSettings",
    "known_queue",
    "probe",
    "probe_workers",
]
