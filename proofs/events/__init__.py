"""Proofs of event delivery."""
