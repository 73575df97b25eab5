"""What each route does, one file for each noun: a translation onto `tenure.app`."""
