-- name: list_signers
-- Every key that signs, will sign or has signed what may still be valid.
SELECT kid, state, public, sealed, until FROM signer ORDER BY made_at, kid

-- name: list_used_up
-- Some assertions that have expired, and so cannot be used again anyway.
SELECT client, jti FROM used WHERE until < :now ORDER BY until LIMIT :limit

-- name: list_expired
-- Some revoked tokens that have expired.
SELECT jti FROM revoked WHERE until < :now ORDER BY until LIMIT :limit
