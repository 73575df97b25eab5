"""A plane's home: its epoch file, shared settings, lock holders, files written atomically."""
