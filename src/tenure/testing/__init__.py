"""For whoever writes an adapter: contract suites, fakes that keep them, and ways to break things.

Nothing in the running system imports this.
"""
