"""What is true: pure values and rules.

Standard library alone; no I/O, clock, randomness or loop.
"""
