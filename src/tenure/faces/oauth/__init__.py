"""OAuth's own wire: tokens, registration, introspection, revocation, keys and metadata.

Nothing is decided here; requests are read strictly and handed to the authorization server.
"""
