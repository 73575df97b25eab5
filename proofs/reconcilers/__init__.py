"""Proofs of the reconcilers."""
