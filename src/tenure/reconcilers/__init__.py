"""Reconcilers: each file keeps one sentence true, from level and never from events."""
