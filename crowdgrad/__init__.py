"""crowdgrad: train a neural network on the spare time of anyone willing to help.

    import crowdgrad as cg

    task = cg.Task(model, loss, inputs=(x,), targets=(y,))
    result = cg.train(task, data, recipe=cg.AsyncSGD(lr=0.05), epochs=5, volunteers=2)

Public names are loaded when they are first used, so that importing the package costs nothing and a
volunteer never loads PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crowdgrad import data as data
    from crowdgrad.capture import metrics as metrics
    from crowdgrad.capture.metrics import Metric as Metric
    from crowdgrad.capture.metrics import accuracy as accuracy
    from crowdgrad.capture.task import Task as Task
    from crowdgrad.data.dataset import DataSet as DataSet
    from crowdgrad.errors import CrowdgradError as CrowdgradError
    from crowdgrad.host.job import JobPlan as Job  # noqa: F401
    from crowdgrad.host.train import Result as Result
    from crowdgrad.host.train import load_data as load_data
    from crowdgrad.host.train import train as train
    from crowdgrad.numerics import rules as rules
    from crowdgrad.numerics.schedules import Schedule as Schedule
    from crowdgrad.recipes.async_sgd import AsyncSGD as AsyncSGD
    from crowdgrad.recipes.averaging import WeightAveraging as WeightAveraging
    from crowdgrad.recipes.base import Growth as Growth
    from crowdgrad.recipes.base import Penalty as Penalty
    from crowdgrad.recipes.crowd import Crowd as Crowd
    from crowdgrad.recipes.dc_asgd import DCASGD as DCASGD
    from crowdgrad.recipes.downpour import Downpour as Downpour
    from crowdgrad.recipes.synchronous import Synchronous as Synchronous

__version__ = "0.1.0"

_HOMES = {
    "AsyncSGD": ("crowdgrad.recipes.async_sgd", "AsyncSGD"),
    "Crowd": ("crowdgrad.recipes.crowd", "Crowd"),
    "CrowdgradError": ("crowdgrad.errors", "CrowdgradError"),
    "DCASGD": ("crowdgrad.recipes.dc_asgd", "DCASGD"),
    "DataSet": ("crowdgrad.data.dataset", "DataSet"),
    "Downpour": ("crowdgrad.recipes.downpour", "Downpour"),
    "Growth": ("crowdgrad.recipes.base", "Growth"),
    "Job": ("crowdgrad.host.job", "JobPlan"),
    "Metric": ("crowdgrad.capture.metrics", "Metric"),
    "Penalty": ("crowdgrad.recipes.base", "Penalty"),
    "Result": ("crowdgrad.host.train", "Result"),
    "Schedule": ("crowdgrad.numerics.schedules", "Schedule"),
    "Synchronous": ("crowdgrad.recipes.synchronous", "Synchronous"),
    "Task": ("crowdgrad.capture.task", "Task"),
    "WeightAveraging": ("crowdgrad.recipes.averaging", "WeightAveraging"),
    "accuracy": ("crowdgrad.capture.metrics", "accuracy"),
    "data": ("crowdgrad.data", ""),
    "load_data": ("crowdgrad.host.train", "load_data"),
    "metrics": ("crowdgrad.capture.metrics", ""),
    "rules": ("crowdgrad.numerics.rules", ""),
    "train": ("crowdgrad.host.train", "train"),
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdgrad' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    try:
        home = importlib.import_module(module)
        value = getattr(home, attribute) if attribute else home
    except ModuleNotFoundError as error:
        from crowdgrad.errors import missing_module

        raise (missing_module(error) or error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
