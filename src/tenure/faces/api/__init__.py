"""The HTTP API under `/v1`: its routes, and the bodies of their requests and responses."""
