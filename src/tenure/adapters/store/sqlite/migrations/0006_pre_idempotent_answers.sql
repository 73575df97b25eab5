-- Only adds: the answer that a repeated request gets again.

-- NULL: the request's effect is an operation or a subscription, or the request is not finished yet.
ALTER TABLE idempotency ADD COLUMN answer TEXT;
