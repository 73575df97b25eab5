"""Proofs of the saga kernel, over example plans."""
