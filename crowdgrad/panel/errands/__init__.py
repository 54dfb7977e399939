"""What the panel has done in other processes, since it needs PyTorch or takes long."""
