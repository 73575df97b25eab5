"""Real processes killed with -9, and an audit of what they left."""
