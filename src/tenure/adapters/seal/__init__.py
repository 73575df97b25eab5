"""Adapters of the port `tenure.ports.seal`."""
