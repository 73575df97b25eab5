"""Pure values and rules of operations and agents.

Modules here use only the standard library and have no I/O, clock, randomness or event loop.
"""
