"""Who is here, what each gave, whose turn it is, and who is in doubt."""
