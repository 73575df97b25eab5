"""Agents: create, lifecycle verbs, ownership and cascade, quotas, specs, invocations in flight."""
