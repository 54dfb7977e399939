"""What survives the host: checkpoints, the job itself, and going on from them."""
