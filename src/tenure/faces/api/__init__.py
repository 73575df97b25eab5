"""Our own HTTP interface, `/v1`: what each route takes, does and gives."""
