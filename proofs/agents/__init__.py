"""Proofs of the agent lifecycle, over fake providers."""
