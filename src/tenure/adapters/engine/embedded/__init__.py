"""The embedded engine: this process executes the operations that it has claimed."""

from tenure.adapters.engine.embedded.engine import EmbeddedEngine
from tenure.adapters.engine.embedded.settings import EngineSettings

__all__ = ["EmbeddedEngine", "EngineSettings"]
