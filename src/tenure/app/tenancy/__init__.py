"""Tenancy: API tokens and the audit log."""
