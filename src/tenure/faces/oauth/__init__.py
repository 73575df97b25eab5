"""The OAuth face: tokens, registration, introspection, revocation, keys and metadata.

It parses requests strictly and passes them to the authorization server, which decides.
"""
