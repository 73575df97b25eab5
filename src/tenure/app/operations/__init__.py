"""Operations: admission, execution of moves, their records, claims, idempotency keys, views."""
