"""The relay: a process that host and volunteer both dial and that splices their bytes."""
