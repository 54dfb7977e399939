from __future__ import annotations

import pytest
import torch
from torch import nn

from crowdgrad.capture.capture import classes_of
from crowdgrad.capture.metrics import Metric, accuracy
from crowdgrad.capture.task import ACCURACY, Task, resolve_metrics
from crowdgrad.errors import TaskError

X, Y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


def task(**changes) -> Task:
    given = dict(model=nn.Linear(3, 2), loss=nn.functional.cross_entropy, inputs=(X,), targets=(Y,))
    return Task(**{**given, **changes})


def test_a_lone_tensor_and_a_list_are_taken_for_tuples():
    made = task(inputs=X, targets=[Y])
    assert [len(made.inputs), len(made.targets)] == [1, 1]
    assert all(map(torch.equal, made.example, (X, Y)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": lambda x: x}, "not a torch.nn.Module"),
        ({"loss": None}, "not a function"),
        ({"inputs": ()}, "no example inputs"),
        ({"inputs": (1.0,)}, "not float"),
        ({"inputs": (torch.tensor(1.0),)}, "batch dimension first"),
        ({"targets": (Y[:2],)}, "batch sizes"),
        ({"inputs": (X[:0],), "targets": (Y[:0],)}, "batch sizes"),
        ({"inputs": (X.to("meta"),)}, "lie on meta"),
    ],
)
def test_an_example_that_makes_no_sense_is_refused(changes, reason):
    with pytest.raises(TaskError, match=reason):
        task(**changes)


def test_accuracy_is_the_default_metric_of_classifications_only():
    output = torch.randn(4, 2)
    assert resolve_metrics(task(), output) == {"accuracy": ACCURACY}
    assert resolve_metrics(task(metrics={}), output) == {}
    assert resolve_metrics(task(metrics={"mine": accuracy}), output) == {"mine": Metric(accuracy)}
    assert resolve_metrics(task(targets=(torch.randn(4),)), output) == {}
    assert resolve_metrics(task(targets=()), output) == {}
    assert resolve_metrics(task(), torch.randn(4)) == {}
    assert resolve_metrics(task(), torch.randn(4, 1)) == {}
    square = task(targets=(torch.zeros(4, 3, dtype=torch.int64),))
    assert resolve_metrics(square, torch.randn(4, 3, 5)) == {"accuracy": ACCURACY}
    assert resolve_metrics(square, torch.randn(4, 3, 3)) == {}


def test_one_output_tells_no_classes_apart():
    assert classes_of(task()) == 2
    assert classes_of(task(model=nn.Linear(3, 1))) is None
    assert classes_of(task(model=nn.Linear(3, 1), metrics={"accuracy": accuracy})) is None
