"""What to do: pure decisions. State and `now` in, a decision and its reason out."""
