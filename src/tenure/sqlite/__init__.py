"""One SQLite file with one writer and group commit; for adapters, and for upkeep of their files.

The store and the embedded providers each have a file of their own and share these modules:
`durable_file` opens the file, the committer writes it; others have SQL statements, migrations
and copies. The owner of the file defines its tables. Only two kinds of tables are defined here:
those that record changes and counters, and those that every embedded provider has
(`resource_file`).
"""
