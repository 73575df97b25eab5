"""One SQLite file, held safely and written in groups; for adapters, and for upkeep of their files.

The store and the embedded providers each have a file of their own and share these rooms: the gate
that opens it, the committer that writes it, the statements it writes with, the migrations it was
made by, and the copy taken of it. What tables mean is known to whoever owns the file, but for those
that number and remember changes, and those that every embedded provider has (`holdings`).
"""
