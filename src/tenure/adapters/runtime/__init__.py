"""Runtimes: somewhere an agent can run."""
