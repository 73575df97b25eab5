"""Identity: who an agent is, and how it proves that."""
