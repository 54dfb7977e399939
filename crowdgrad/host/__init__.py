"""PROCESS: a host. It leases units, checks updates, applies the rule and writes the run folder."""
