"""What every HTTP face shares: server, limits, authentication, bodies, problems, route table."""
