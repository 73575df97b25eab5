"""Tenure: every operation on an agent finishes or is undone, and says honestly which."""

__version__ = "0.1.0"

__all__ = ["__version__"]
