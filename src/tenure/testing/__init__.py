"""For authors of adapters: contract suites, fakes that pass them, and fault injection.

Nothing in the running system imports this.
"""
