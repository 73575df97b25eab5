"""Delivery: carries committed events from the outbox to their destinations."""
