"""Proofs of the HTTP face: bounds under floods, hostile requests."""
