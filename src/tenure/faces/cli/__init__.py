"""The command line: an HTTP client of a running plane; only `up` and `worker` start one."""
