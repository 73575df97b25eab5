"""One SQLite file, held safely and written in groups; for adapters only.

The store and the embedded providers each have a file of their own and share these rooms: the gate
that opens it, the committer that writes it, the statements it writes with, the migrations it was
made by, and the copy taken of it. Nothing here knows what the tables mean.
"""
