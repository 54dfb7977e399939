"""How bytes move: messages, frames, carriers, identity."""
