"""PROCESS: a volunteer. The agent has network, keys and disk; the trainer computes and has none."""
