"""Operator commands on a plane's files: back up, restore, inspect an upgrade, move the store.

Nothing here starts a plane.  `tenure.wiring` lists the files of a home.  Every file is written
under a temporary name, flushed, and then renamed.
"""
