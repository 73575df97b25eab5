"""Request and response bodies, one file for each noun; unknown request fields are refused."""
