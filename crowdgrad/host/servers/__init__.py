"""Several parameter servers: processes, here or elsewhere, that hold the numbers for a host."""
