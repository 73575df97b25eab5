"""How: one folder for each port, one below it for each technology.

An adapter's entry is `build()` in its `__init__.py`; adapters import core and ports (and storage),
never each other.
"""
