"""The maths, on flat float32 vectors. Pure: no clock, no input or output."""
