"""What is remembered: one interface, and the places it can be kept in."""
