"""`crowdgrad` without a command is the control panel."""

from __future__ import annotations

import pytest

from crowdgrad.cli import panel
from crowdgrad.cli.main import _with_command, parser


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ["panel"]),
        (["--app"], ["panel", "--app"]),
        (["--verbose"], ["--verbose", "panel"]),
        (["--verbose", "--port=8000", "--no-browser"],
         ["--verbose", "panel", "--port=8000", "--no-browser"]),
        (["host", "job.toml", "--host", "127.0.0.1"], ["host", "job.toml", "--host", "127.0.0.1"]),
        (["--verbose", "host", "job.toml"], ["--verbose", "host", "job.toml"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        (["--nonsense"], ["--nonsense"]),
        (["panel", "--app"], ["panel", "--app"]),
    ],
)  # fmt: skip
def test_what_stands_without_a_command(given: list[str], wanted: list[str]) -> None:
    assert _with_command(given) == wanted


def test_all_options_of_the_panel_may_stand_alone() -> None:
    args = parser().parse_args(_with_command(["--app", "--port", "0", "--runs", "r", "--tied"]))
    assert (args.app, args.port, args.runs, args.tied) == (True, 0, "r", True)
    assert args.run is panel.run
