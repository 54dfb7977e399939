"""The form of weight gradients: who asks for it, and which one is picked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from crowdgrad.capture import forms
from crowdgrad.capture.forms import FORMS, conv_form, current_form, pick
from crowdgrad.program.engines.base import Batch


def test_the_form_holds_inside_only() -> None:
    before = current_form()
    for name in FORMS:
        with conv_form(name):
            assert current_form() == name
        assert current_form() == before


def test_the_faster_median_is_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slow step does not decide."""
    steps = {"conv": iter([9.0, 0.2, 5.0, 0.2, 0.2]), "gemm": iter([9.0, 0.3, 0.3, 0.3, 0.3])}

    def timer(program: str, _state: Any, _batch: Any) -> Any:
        return SimpleNamespace(step=lambda: next(steps[program]))

    monkeypatch.setattr(forms, "_Timer", timer)
    programs = cast("Any", {name: name for name in FORMS})
    choice = pick(programs, np.zeros(1, np.float32), Batch(number=0, fields=(np.zeros(1),)))
    assert choice.name == "conv"
    assert choice.times_ms == pytest.approx({"conv": 200.0, "gemm": 300.0})
