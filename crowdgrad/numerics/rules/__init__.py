"""What the server does with an update: one rule a file."""
