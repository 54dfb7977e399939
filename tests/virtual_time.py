"""The simulator's event loop, for tests: see `crowdgrad/simulator/virtual_time.py`."""

from __future__ import annotations

from crowdgrad.simulator.virtual_time import Deadlock, VirtualLoop, run_virtual

__all__ = ["Deadlock", "VirtualLoop", "run_virtual"]
