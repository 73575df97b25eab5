"""The handlers of the routes, one file for each noun; each calls `tenure.app`."""
