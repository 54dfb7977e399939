"""The volunteer, seen and steered from elsewhere on this machine: terminal, panel, scripts."""
