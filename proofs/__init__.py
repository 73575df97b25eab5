"""The proofs of the promises: simulators, crash matrices, ablations.  Not part of the wheel."""
