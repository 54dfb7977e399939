"""What runs a program: `base` is the interface, every other module one engine."""
