"""Questions at a real terminal: a person types, and the loop goes on meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from crowdgrad.cli.main import main
from crowdgrad.host import publishing
from tests.cli.terminal import Terminal

ASK = """
import asyncio, dataclasses, sys
from contextlib import ExitStack
from rich.console import Console
from crowdgrad.cli.ask import can_ask, whether_to_help
from crowdgrad.process import run_async
from tests.volunteer.test_consent import REQUEST, UNPROVEN

async def beats(count=[0]):
    while True:
        count[0] += 1
        if count[0] == 20:
            print("still beating", flush=True)
        await asyncio.sleep(0.01)

async def main():
    console = Console()
    assert can_ask(console)
    beating = asyncio.create_task(beats())
    for request in (REQUEST, UNPROVEN):
        print("->", await whether_to_help(console, ExitStack)(request), flush=True)

run_async(main())
"""


def test_the_question_is_answered_while_the_loop_goes_on() -> None:
    root = Path(__file__).parents[2]
    with Terminal(["-c", ASK], root) as person:
        shown = person.until("still beating")
        assert "Ada's lab (key 0123456789abcdef)" in shown
        assert "Help this host? [y]es this time, [a]lways for this host, [n]o: " in shown
        person.type("maybe\n")
        person.until(r"Help this host\?")
        person.type("A\n")
        shown = person.until("-> always(.|\n)*Help")
        assert "[y]es this time, [n]o: " in shown  # it has proven no key
        person.type("a\n")
        person.until(r"Help this host\?")
        person.type("yes\n")
        person.until("-> yes")
        assert person.end() == 0


def test_the_end_of_input_is_no() -> None:
    with Terminal(["-c", ASK], Path(__file__).parents[2]) as person:
        person.until("Help")
        person.type("\x04")
        person.until("-> no")


# -- publishing data --------------------------------------------------------------------------

JOB = 'title = "Mine"\ntask = "crowdgrad.capture.models:digits_mlp"\ndata = "mine.npz"\n'
PUBLISH = """
import sys
from pathlib import Path
from rich.console import Console
from crowdgrad.cli import host
from crowdgrad.cli.host_arguments import options_of
from crowdgrad.cli.host_publishing import agree_to_publish
from crowdgrad.cli.main import main
from crowdgrad.data.dataset import from_arrays
from crowdgrad.host.publishing import Material

def agree(args):
    data = from_arrays([[1.0]] * 20, [0] * 20, title="Diaries")
    material = Material.of_data(data)
    agree_to_publish(args, options_of(args, None), material, Path(args.home), Console())
    print("published")
    return 0

host.run = agree
sys.exit(main(["host", "job.toml", "--home", sys.argv[1], *sys.argv[2:]]))
"""


def publish(home: Path, *options: str) -> Terminal:
    return Terminal(["-c", PUBLISH, str(home), *options], Path(__file__).parents[2])


def test_publishing_is_asked_once_for_each_data_set(tmp_path: Path) -> None:
    with publish(tmp_path, "--host", "0.0.0.0") as person:
        shown = person.until(r"Publish it\?")
        assert "“Diaries”: 20 records" in shown
        assert "Every volunteer can read the data" in shown
        person.type("n\n")
        person.until(r"\[CG106\] “Diaries” is not published")
        assert person.end() == 1
    with publish(tmp_path, "--matchmaker", "http://127.0.0.1:1") as person:
        person.until(r"Publish it\?")
        person.type("y\n")
        person.until("published")
        assert person.end() == 0
    with publish(tmp_path, "--advertise", "example.org") as person:
        assert person.end() == 0
        assert "Publish it" not in person.shown


def test_ctrl_c_at_the_question_publishes_nothing(tmp_path: Path) -> None:
    with publish(tmp_path, "--host", "0.0.0.0") as person:
        person.until(r"Publish it\?")
        person.type("\x03")
        assert person.end() == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "advertise", "matchmaker", "others"),
    [
        ("127.0.0.1", None, None, False),
        ("localhost", None, None, False),
        ("::1", None, None, False),
        ("0.0.0.0", None, None, True),
        ("192.0.2.7", None, None, True),
        ("127.0.0.1", "example.org", None, True),
        ("127.0.0.1", None, "http://127.0.0.1:8700", True),
    ],
)
def test_who_can_reach_a_job(
    host: str, advertise: str | None, matchmaker: str | None, others: bool
) -> None:
    assert publishing.open_to_others(host, advertise, matchmaker) is others


def test_a_script_must_say_yes_before_anything_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.zeros(20, np.int64))
    (tmp_path / "job.toml").write_text(JOB)

    def captured(*what: object) -> None:
        raise AssertionError("it went on")

    monkeypatch.setattr("crowdgrad.host.job.prepare", captured)
    asked = ["host", str(tmp_path / "job.toml"), "--home", str(tmp_path), "--host", "0.0.0.0"]
    assert main(asked) == 1
    said = capsys.readouterr()
    assert "[CG106] Nobody has agreed to publish" in said.err
    assert "Say --yes" in said.err
    assert "20 records" in said.out
    with pytest.raises(AssertionError, match="it went on"):
        main([*asked, "--yes"])
    with pytest.raises(AssertionError, match="it went on"):
        main(asked[:-2])


def test_a_data_set_is_named_by_what_is_in_it() -> None:
    from crowdgrad.data.dataset import from_arrays

    one = from_arrays([[1.0]] * 20, [0] * 20, title="a")
    assert publishing.name_of(one) == publishing.name_of(
        from_arrays([[1.0]] * 20, [0] * 20, title="b")
    )
    others = (
        from_arrays([[1.0]] * 19 + [[2.0]], [0] * 20),
        from_arrays([[1.0]] * 20, [0] * 20, names=("x", "z")),
        from_arrays([[1.0]] * 20, [0] * 20, validation=2),
    )
    names = {publishing.name_of(data) for data in (one, *others)}
    assert len(names) == 4
