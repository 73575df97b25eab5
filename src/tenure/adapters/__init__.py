"""How: one folder for each port, one below it for each technology.

Adapters import core and ports, and the rooms `sqlite` and `home`; they never import each other.
"""
