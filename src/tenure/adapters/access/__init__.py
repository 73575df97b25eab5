"""Where grants are kept: roles and team memberships."""
