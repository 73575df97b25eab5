"""The HTTP face: one table of routes, from which everything else follows."""
