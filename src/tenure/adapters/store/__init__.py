"""Where operations are kept: `sqlite`, one file on disk; `memory`, the same promises in a dict."""
