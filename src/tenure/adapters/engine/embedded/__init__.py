"""The embedded engine: one process moves every operation it has claimed."""

from tenure.adapters.engine.embedded.engine import EmbeddedEngine
from tenure.adapters.engine.embedded.settings import EngineSettings

__all__ = ["EmbeddedEngine", "EngineSettings"]
