"""What went wrong, as pages say it."""

from __future__ import annotations

import pytest

from crowdgrad.errors import DataMalformed
from crowdgrad.panel.problems import AT_A_TERMINAL, of_preparing


@pytest.mark.parametrize("advice", ["Leave it out: --column x=drop.", "Say --no-header."])
def test_options_are_said_to_be_for_a_terminal(advice: str) -> None:
    found = of_preparing(DataMalformed("It is empty.", advice=advice))
    assert found.advice == f"{advice} {AT_A_TERMINAL}"


@pytest.mark.parametrize(
    "advice", ["Rename the column.", "Mend it -- by hand.", "A well--known one."]
)
def test_what_names_no_option_is_said_as_it_is(advice: str) -> None:
    assert of_preparing(DataMalformed("It is empty.", advice=advice)).advice == advice
