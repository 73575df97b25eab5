"""How the world asks us: HTTP, command line, and the wires of others."""
