"""The walls around the trainer: a stranger's arithmetic can reach nothing on this machine.

Standard library only: it runs before numpy exists. `walls.py` says what is promised, `enter.py` in
which order the walls go up, and each other module is one thing the kernel does for us.
"""
