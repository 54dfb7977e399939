from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import crowdgrad as cg
from crowdgrad.capture import metrics
from crowdgrad.capture.metrics import IGNORED, Metric, accuracy, as_metrics
from crowdgrad.errors import TaskError

torch.manual_seed(0)
SCORES = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 2.0], [0.0, 1.0, 5.0], [5.0, 1.0, 4.0]])
TARGET = torch.tensor([1, 2, 1, 1])


def test_accuracy_counts_the_largest_output():
    assert accuracy(SCORES, TARGET) == 0.25


def test_top_k_counts_targets_among_the_largest():
    assert [float(metrics.top_k(k)(SCORES, TARGET).mean()) for k in (1, 2, 3)] == [0.25, 0.75, 1.0]


def test_sequences_have_their_classes_last_and_images_in_dimension_one():
    words, labels = torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))
    wanted = (words.argmax(-1) == labels).float().mean()
    assert torch.isclose(accuracy(words, labels), wanted)
    image, classes = torch.randn(2, 7, 4, 3), torch.randint(0, 7, (2, 4, 3))
    wanted = (image.argmax(1) == classes).float().mean()
    assert torch.isclose(accuracy(image, classes), wanted)


def test_perplexity_is_the_exponential_of_the_mean_cross_entropy():
    words, labels = torch.randn(3, 5, 7), torch.randint(0, 7, (3, 5))
    mean = float(metrics.perplexity(words, labels).mean())
    assert math.isclose(
        mean, float(F.cross_entropy(words.reshape(15, 7), labels.reshape(15))), rel_tol=1e-5
    )
    assert metrics.perplexity.spec("perplexity").shown(mean) == math.exp(mean)
    assert metrics.perplexity.better == "lower"


def test_padding_counts_neither_as_right_nor_as_wrong():
    words = F.one_hot(torch.tensor([[0, 1, 2, 3]]), 4).float()
    assert accuracy(words, torch.tensor([[0, 2, IGNORED, IGNORED]])) == 0.5
    assert accuracy(words, torch.full((1, 4), IGNORED)) == 0


def test_samples_that_are_all_padding_are_left_out_of_the_mean():
    target = torch.tensor([1, IGNORED, 1, IGNORED])
    assert accuracy(SCORES, target) == 0.5
    assert float(metrics.top_k(1)(SCORES, target).mean()) == 0.5
    entropy = float(metrics.perplexity(SCORES, target).mean())
    assert entropy == pytest.approx(float(F.cross_entropy(SCORES, target)))
    words = F.one_hot(torch.tensor([[0, 1, 2], [0, 1, 2]]), 4).float()
    assert accuracy(words, torch.tensor([[0, 1, 3], [IGNORED] * 3])) == pytest.approx(2 / 3)


def test_classes_are_in_dimension_one_where_both_would_fit():
    scores, target = torch.randn(5, 3, 3), torch.randint(0, 3, (5, 3))
    wanted = float(F.cross_entropy(scores, target))
    assert float(metrics.perplexity(scores, target).mean()) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["mean_absolute_error", "root_mean_square_error"])
def test_differences_of_other_shapes_are_refused(name):
    with pytest.raises(TaskError, match=r"\(batch, 1\) and targets of shape \(batch\)"):
        getattr(metrics, name)(torch.zeros(4, 1), torch.zeros(4))


@pytest.mark.parametrize(("outputs", "target"), [(SCORES, TARGET[:, None]), (SCORES[:, 0], TARGET)])
def test_classes_of_other_shapes_are_refused(outputs, target):
    with pytest.raises(TaskError, match=r"a metric of classes got outputs of shape \(batch"):
        accuracy(outputs, target)


def test_mean_errors():
    output, target = torch.tensor([[1.0, 2.0], [0.0, 4.0]]), torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    assert metrics.mean_absolute_error(output, target).tolist() == [0.5, 2.0]
    squares = metrics.root_mean_square_error(output, target)
    spec = metrics.root_mean_square_error.spec("error")
    assert spec.shown(float(squares.mean())) == pytest.approx(math.sqrt(17 / 4))
    assert not spec.is_better(2.0, 1.0)


def test_plain_functions_are_metrics_of_which_more_is_better():
    made = as_metrics({"mine": accuracy, "low": metrics.perplexity})
    assert made == {"mine": Metric(accuracy, better="higher"), "low": metrics.perplexity}
    assert cg.Metric is Metric
    assert cg.metrics.top_k is metrics.top_k
