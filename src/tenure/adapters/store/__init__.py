"""Where operations are kept: `sqlite`, `postgres`, and `memory`, the same promises in a dict."""
