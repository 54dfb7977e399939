"""The control panel: one local process that starts hosts and volunteers and shows what they do.

It serves the web app on this machine, starts `crowdgrad host` and `crowdgrad work` as children tied
to it, and speaks with their HTTP APIs. It computes nothing itself: what needs PyTorch, or takes
long, runs in a process of its own (`panel/errands/`), so the panel stays small and always answers.
"""
