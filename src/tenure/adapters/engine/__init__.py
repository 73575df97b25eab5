"""Engines: loops around the app's way to move one operation."""
