"""Local processes, each under a keeper."""

from tenure.adapters.runtime.process.provider import ProcessRuntime

__all__ = ["ProcessRuntime"]
