"""Clocks and randomness."""
