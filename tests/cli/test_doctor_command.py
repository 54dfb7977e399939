"""`crowdgrad doctor`: what a person and a script get, on a sound machine and on others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from crowdgrad.cli.main import main
from crowdgrad.volunteer.sandbox import examination
from crowdgrad.volunteer.sandbox.attempts import ATTEMPTS
from crowdgrad.volunteer.sandbox.examination import Examination, Outcome
from crowdgrad.volunteer.sandbox.walls import WALLS, Step, held

ESSENTIAL = {"network", "reading", "writing", "programs", "processes", "others"}


pytestmark = pytest.mark.usefixtures("like_a_process_of_its_own")


def words(text: str) -> str:
    return " ".join(text.split())


def steps(*missing: str) -> list[Step]:
    names = {name for wall in WALLS for names in (*wall.needs, wall.helps) for name in names}
    return [
        Step(name=name, ok=name not in missing, note="too old" if name in missing else "")
        for name in sorted(names)
    ]


def outcomes(*through: str) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(
            attempt=name,
            wall=one.wall,
            words=one.words,
            stopped=name not in through,
            how="it worked" if name in through else "ended by the kernel",
        )
        for name, one in ATTEMPTS.items()
    )


def machine(missing: tuple[str, ...] = (), through: tuple[str, ...] = ()) -> Examination:
    return Examination(
        held=held(steps(*missing)), outcomes=outcomes(*through), libraries={"numpy": "2"}
    )


def told(monkeypatch, capsys, found: Examination) -> tuple[int, str]:
    monkeypatch.setattr(examination, "examine", lambda: found)
    code = main(["doctor"])
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.splitlines())
    return code, words(said)


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
def test_this_machine_is_really_examined(tmp_path, capsys):
    file = tmp_path / "doctor.json"
    code = main(["doctor", "--json", str(file)])
    said = words(capsys.readouterr().out)
    report = json.loads(file.read_text())
    assert [row["wall"] for row in report["walls"]] == [wall.id for wall in WALLS]
    assert {row["wall"] for row in report["walls"] if row["essential"]} == ESSENTIAL
    assert {one["attempt"] for one in report["attempts"]} == set(ATTEMPTS)
    assert "onnxruntime" in report["system"]["computes"]
    assert report["sound"] == (code == 0)
    stopped = sum(one["stopped"] for one in report["attempts"])
    assert f"{stopped} of {len(ATTEMPTS)} attempts were stopped." in said
    for wall in WALLS:
        assert wall.promise in said


def test_on_a_sound_machine_every_wall_holds(monkeypatch, capsys):
    code, said = told(monkeypatch, capsys, machine())
    assert code == 0
    assert said.count(" holds ") == len(WALLS)
    assert "FAILS" not in said
    assert "A stranger's model can be let in." in said


def test_the_page_promises_what_the_table_does():
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")
    for wall in WALLS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{wall.id}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert (cells[1], cells[3] == "yes") == (wall.promise, wall.essential)


def test_what_only_makes_a_wall_thinner_is_told_with_what_to_do(monkeypatch, capsys):
    code, said = told(monkeypatch, capsys, machine(missing=("landlock", "namespaces")))
    assert code == 0
    assert "without landlock: too old" in said
    assert "It needs Linux 5.13 or later" in said
    assert "An administrator can allow user namespaces" in said


@pytest.mark.parametrize("name", ATTEMPTS)
def test_whatever_comes_through_makes_its_wall_fail(name, monkeypatch, capsys):
    wall = ATTEMPTS[name].wall
    code, said = told(monkeypatch, capsys, machine(through=(name,)))
    assert f"{wall} FAILS" in said
    assert f"not stopped: {ATTEMPTS[name].words} (it worked)" in said
    assert code == (1 if wall in ESSENTIAL else 0)


def test_a_wall_that_does_not_stand_fails_even_if_nothing_came_through(monkeypatch, capsys):
    code, said = told(monkeypatch, capsys, machine(missing=("seccomp", "seal")))
    assert code == 1
    assert "Essential walls that do not hold: network, writing, programs" in said
    assert "Lend this machine only to hosts you know." in said


def test_where_nothing_can_compute_it_says_so(monkeypatch, capsys):
    found = machine()
    broken = Examination(
        held=found.held, outcomes=found.outcomes, libraries={"error": "No module named [x]"}
    )
    code, said = told(monkeypatch, capsys, broken)
    assert code == 1
    assert "computes No module named [x]" in said
    assert "no job can run here" in said


def test_standard_output_can_be_json_alone(monkeypatch, capsys):
    monkeypatch.setattr(examination, "examine", machine)
    assert main(["doctor", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"]
