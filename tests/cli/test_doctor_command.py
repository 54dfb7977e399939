"""`crowdgrad doctor`: what a person and a script get, on a sound machine and on others."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from crowdgrad.cli import doctor
from crowdgrad.cli.main import main, parser
from crowdgrad.doctor import checkup, seen
from crowdgrad.doctor.checkup import CHECKS, Asked, Checkup
from crowdgrad.doctor.finding import Finding
from crowdgrad.volunteer.sandbox import examination
from crowdgrad.volunteer.sandbox.attempts import ATTEMPTS
from crowdgrad.volunteer.sandbox.examination import Examination, Outcome
from crowdgrad.volunteer.sandbox.walls import WALLS, Step, held
from tests.doctor.test_checkup import World
from tests.doctor.test_judging import PIN

FINDING = Finding(id="x", state="good", words="It is there.")
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
    code = main(["doctor", "--only", "walls"])
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.splitlines())
    return code, words(said)


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
def test_this_machine_is_really_examined(tmp_path, capsys):
    file = tmp_path / "doctor.json"
    code = main(["doctor", "--only", "walls", "--json", str(file)])
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
    lines = page.partition("## The walls")[2].splitlines()
    for wall in WALLS:
        row = next(line for line in lines if line.startswith(f"| `{wall.id}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert (cells[1], cells[3] == "yes") == (wall.promise, wall.essential)


def test_every_check_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs/doctor.md").read_text(encoding="utf-8")
    table = page.partition("## The checks")[2].partition("## The walls")[0]
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert rows[: len(CHECKS)] == [check.id for check in CHECKS]


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
    assert main(["doctor", "--only", "walls", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"]


# -- everything else ------------------------------------------------------------------------------


def seen_there(monkeypatch, tmp_path, **other) -> World:
    """Whatever the command looks at is that world's, on a sound machine."""
    world = World()
    edges = world.edges(walls=machine, **other)
    monkeypatch.setattr(checkup, "Checkup", lambda asked: Checkup(asked, edges))
    monkeypatch.setenv("CROWDGRAD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CROWDGRAD_MATCHMAKER", raising=False)
    return world


def test_when_all_is_well_every_finding_is_one_line(monkeypatch, capsys, tmp_path):
    seen_there(monkeypatch, tmp_path)
    assert main(["doctor", "--matchmaker", "https://m.org"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert [line.split()[:2] for line in lines[:-2]] == [
        ["✓", check.id] for check in CHECKS if check.id != "way"
    ]
    assert lines[-2:] == ["", "All is well."]
    assert all(len(line) <= 80 for line in lines)


def test_advice_stands_under_what_is_wrong(monkeypatch, capsys, tmp_path):
    def full(purpose: str, path: Path) -> seen.Disk:
        return seen.Disk(purpose=purpose, path=str(path), free_bytes=0)

    async def closed(url: str | None, port: int) -> seen.Network:
        return seen.Network(
            local=("192.168.1.5",), observed="198.51.100.7", reached=False, why="nobody [answers]"
        )

    seen_there(monkeypatch, tmp_path, disk=full, network=closed)
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    said = words(" ".join(lines))
    assert "✗ disk Only 0.0 GB are free for keys and data" in said
    assert "→ Make room" in said
    assert "! network Others cannot dial this machine (nobody [answers])" in said
    assert "Or host through a relay: `crowdgrad host … --relay ROUTE`" in said
    assert said.endswith("One thing is in the way of lending or hosting.")


def test_what_is_only_worth_knowing_is_no_failure(monkeypatch, capsys, tmp_path):
    seen_there(monkeypatch, tmp_path, multicast=lambda out: seen.Multicast(out=out, asked=()))
    assert main(["doctor"]) == 0
    assert "Nothing is in the way, but" in capsys.readouterr().out


def test_walls_that_do_not_hold_are_shown_whole(monkeypatch, capsys, tmp_path):
    seen_there(monkeypatch, tmp_path)
    monkeypatch.setattr(
        checkup, "Checkup",
        lambda asked: Checkup(asked, World().edges(walls=lambda: machine(missing=("seccomp",)))),
    )  # fmt: skip
    assert main(["doctor"]) == 1
    said = words(capsys.readouterr().out)
    assert "✗ walls Essential walls that do not hold: network" in said
    assert said.count(" FAILS ") > 1


def test_a_report_for_support_tells_all_but_where_our_home_is(monkeypatch, capsys, tmp_path):
    seen_there(monkeypatch, tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "doctor.json"
    assert main(["doctor", "--json", str(file)]) == 0
    assert str(tmp_path) not in file.read_text()
    report = json.loads(file.read_text())
    assert report["sound"]
    assert [finding["id"] for finding in report["findings"]] == [
        check.id for check in CHECKS if check.id != "way"
    ]
    disk = next(finding for finding in report["findings"] if finding["id"] == "disk")
    assert disk["data"]["keys and data"]["path"] == "~/home"
    assert set(disk) == {"id", "state", "words", "advice", "data"}
    assert len(report["walls"]) == len(WALLS)
    assert len(report["attempts"]) == len(ATTEMPTS)
    main(["doctor", "--only", "disk", "--json", "-"])
    told = capsys.readouterr().out
    assert "walls" not in json.loads(told[told.index("{") :])


def test_where_too_little_is_installed_to_look_it_says_what(monkeypatch, capsys):
    def lacking(args: object) -> int:
        raise ModuleNotFoundError("No module", name="websockets.asyncio")

    monkeypatch.setattr(doctor, "_run", lacking)
    assert main(["doctor"]) == 1
    assert "[CG204] websockets is missing" in capsys.readouterr().err


def test_a_mistake_of_ours_is_not_blamed_on_the_install(monkeypatch):
    def mistaken(args: object) -> int:
        raise ModuleNotFoundError("No module", name="crowdgrad.nothing")

    monkeypatch.setattr(doctor, "_run", mistaken)
    with pytest.raises(ModuleNotFoundError):
        main(["doctor"])


def asked(monkeypatch, *words: str) -> Asked:
    for name in ("HOME", "MATCHMAKER"):
        monkeypatch.delenv(f"CROWDGRAD_{name}", raising=False)
    return doctor._asked(parser().parse_args(["doctor", *words]))


def test_what_is_asked_for_is_looked_at(monkeypatch, tmp_path):
    here = ["--home", str(tmp_path)]
    plain = asked(monkeypatch, *here)
    assert (plain.home, plain.chosen, plain.port, plain.target) == (tmp_path, False, 0, None)
    given = asked(
        monkeypatch, *here, "--matchmaker", "https://m.org", "--relay", "r.org:1", "--relay",
        "relay:wss://r.org/x", "--port", "8701", "--only", "clock, relay", "--runs", "elsewhere",
    )  # fmt: skip
    assert (given.matchmaker, given.chosen) == ("https://m.org", True)
    assert given.relays == ("relay:r.org:1", "relay:wss://r.org/x")
    assert (given.port, given.runs) == (8701, Path("elsewhere"))
    assert given.only == {"clock", "relay"}
    link = asked(monkeypatch, *here, f"https://other.org/j/K7Q-2MP#{PIN}")
    assert (link.matchmaker, link.chosen) == ("https://other.org", True)
    assert link.target is not None
    assert link.target.key == PIN


@pytest.mark.parametrize(
    "wrong",
    [
        ["--only", "stars"],
        ["--relay", "nowhere"],
        ["no such thing!"],
        ["K7Q2-MPX4-9RTA"],
        ["192.0.2.7:8701", "--offline"],
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_looked_at(wrong, capsys, monkeypatch):
    monkeypatch.setattr(checkup, "Checkup", lambda asked: pytest.fail("it looks"))
    assert main(["doctor", *wrong]) == 1
    said = capsys.readouterr().err
    assert said.startswith("crowdgrad: [CG10")


def test_in_a_terminal_it_is_seen_what_is_still_looked_at(monkeypatch, tmp_path):
    from rich.console import Console

    board = doctor._Board(CHECKS[:2])
    console = Console(width=80, force_terminal=True, color_system=None)

    def shown() -> str:
        with console.capture() as captured:
            console.print(board)
        return words(captured.get())

    assert "versions looks at what is installed" in shown()
    found: Sequence = [replace(FINDING, id="versions")]
    board.told(CHECKS[0], found)
    assert "✓ versions It is there." in shown()
    assert "clock looks at the time" in shown()
