"""What an operator does to a plane's files: back up, restore, look at an upgrade, move the store.

Nothing here starts a plane.  What a home holds is told by `tenure.wiring`; everything is written
beside its place, flushed, and put there whole.
"""
