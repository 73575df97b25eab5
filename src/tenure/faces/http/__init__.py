"""The base of every HTTP face: server, limits, authentication, bodies, problems, route table."""
