"""The command line: it speaks HTTP to a running plane; only `tenure.faces.cli.up` starts one."""
