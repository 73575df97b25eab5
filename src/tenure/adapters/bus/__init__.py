"""Adapters of the port `tenure.ports.bus`."""
