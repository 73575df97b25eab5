"""Reconcilers: each module keeps one sentence true by comparing states, never by reading events."""
