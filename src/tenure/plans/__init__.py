"""Saga definitions, one file each: ordered steps with do and undo."""
