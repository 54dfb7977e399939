"""The matchmaker's routes, one file for each kind of caller."""
