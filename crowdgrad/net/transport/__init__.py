"""Carriers of frames: `tcp` between machines, `inproc` inside one process, one contract."""
