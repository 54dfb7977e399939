"""What PyTorch says, in words that help: the cause, without colours, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal

from crowdgrad.capture.advice import explain
from crowdgrad.capture.capture import capture
from crowdgrad.capture.task import Task
from crowdgrad.errors import CaptureError


def told(error: Exception, cause: Exception | None = None) -> str:
    with pytest.raises(CaptureError) as caught, explain(nn.Linear(1, 1)):
        raise error from cause
    return f"{caught.value.message} {caught.value.advice}"


def test_the_innermost_cause_is_shown_without_colours() -> None:
    text = told(
        RuntimeError("Failed to convert. \x1b[96mThis is step 3/3\x1b[0m"),
        TypeError("\x1b[1mfloat() wants a number\x1b[0m\nand more"),
    )
    assert "PyTorch says: float() wants a number, at " in text
    assert "\x1b" not in text


def test_what_is_known_is_found_in_a_cause_too() -> None:
    assert "torch.where" in told(RuntimeError("failed"), ValueError("data-dependent size"))


def test_an_error_without_words_is_named() -> None:
    assert "PyTorch says: AssertionError, at " in told(AssertionError())


def test_an_operator_that_cannot_be_traced_is_named() -> None:
    text = told(RuntimeError("aten._ctc_loss.Tensor"))
    assert "operator aten._ctc_loss.Tensor has no translation" in text
    assert "a loss per time step" in text


def _likelihood(output: Tensor, target: Tensor) -> Tensor:
    return -Normal(output, output.exp()).log_prob(target).mean()


def _gaussian(output: Tensor, target: Tensor) -> Tensor:
    return F.gaussian_nll_loss(output, target, output.exp())


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (_likelihood, r"test_advice.py.*validate_args=False"),
        (_gaussian, r"gaussian_nll_loss looks at.*test_advice.py.*Write it out"),
    ],
)
def test_losses_that_look_at_values(loss: Callable[..., Tensor], reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        capture(Task(nn.Linear(4, 3), loss, (torch.randn(6, 4),), (torch.randn(6, 3),)))


class _Flat(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).reshape(-1, self.out_features)


def test_an_output_without_the_batch_of_its_own() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target.reshape(-1))

    task = Task(_Flat(4, 3), loss, (torch.randn(6, 5, 4),), (torch.randint(0, 3, (6, 5)),))
    with pytest.raises(CaptureError, match=r"its own first dimension.*Return \(B, T, V\)"):
        capture(task)
