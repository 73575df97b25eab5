"""What goes over the wire, one file for each noun; a request refuses what it does not know."""
