"""The provider host: serves the embedded providers of one home to all its processes."""
