"""What a caller may ask: one function for each use case."""
