"""The house: the embedded providers of one home, shared by all processes that use it."""
