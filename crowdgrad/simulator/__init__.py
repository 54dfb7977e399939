"""The same code in a virtual world: host, volunteers and matchmaker under one made-up clock.

Clock, network, disk and dice are ours, so hours pass in milliseconds and a seed says everything
that happens. `storm.py` is the scenario; `monitor.py` knows what must never be.
"""
