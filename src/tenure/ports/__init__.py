"""What we ask of the world: protocols and their value types, nothing else."""
