"""One suite for each port: its promises as tests, passed by every adapter and every fake."""
