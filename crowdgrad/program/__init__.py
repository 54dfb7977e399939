"""The model as data: `artifact` packs it, `check` refuses what must not run, `engines` run it.

This package imports no runtime: the control plane handles programs as bytes, and only a trainer
imports an engine.
"""
