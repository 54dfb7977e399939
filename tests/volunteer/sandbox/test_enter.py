"""Where the system refuses a protection, it is told and nothing raises; what holds still holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crowdgrad.volunteer.sandbox import landlock
from crowdgrad.volunteer.sandbox.kernel import Elsewhere, step
from crowdgrad.volunteer.sandbox.walls import WALLS, Held, Step, held

linux = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
ROOT = Path(__file__).parents[3]


def accounted(inside, walls: str) -> dict[str, Held]:
    ended = inside(walls, "account")
    assert ended.returncode == 0, ended.stderr
    return {one["wall"]: Held(**one) for one in json.loads(ended.stdout)}


@linux
def test_without_landlock_and_namespaces_seccomp_keeps_every_promise(inside, need):
    need("network", "seccomp")
    told = accounted(inside, "without:landlock_create_ruleset,unshare")
    assert all(one.holds for one in told.values()), told
    assert "without landlock: landlock_create_ruleset: no, said the test" in told["network"].how
    assert "without namespaces: unshare: no, said the test" in told["network"].how


@linux
def test_without_seccomp_the_walls_it_holds_are_told_to_fail(inside, need):
    need("reading", "landlock")
    told = accounted(inside, "without:seccomp")
    failing = {wall for wall, one in told.items() if not one.holds}
    assert failing == {"network", "writing", "programs", "processes", "others", "kernel"}
    assert told["network"].how.startswith("seccomp: seccomp: no, said the test (only partly: ")
    assert told["reading"].how.startswith("landlock (ABI")


@linux
@pytest.mark.parametrize(
    ("call", "walls"),
    [
        ("ioprio_set", {"priority"}),
        ("capset", {"rights"}),
        ("prctl", {"rights", "ending"}),
    ],
)
def test_any_other_step_that_fails_is_told(call, walls, inside, standing):
    told = accounted(inside, f"without:{call}")
    broken = {wall for wall, one in told.items() if standing[wall].holds and not one.holds}
    assert walls <= broken
    for wall in walls:
        assert f"{call}: no, said the test" in told[wall].how


def test_elsewhere_every_step_says_that_only_linux_has_it():
    taken = step("seccomp", lambda: str(Elsewhere().call("seccomp")))
    assert not taken.ok
    assert "only Linux has it" in taken.note


ELSEWHERE = """
import sys
sys.platform = "{platform}"
from crowdgrad.volunteer.sandbox import enter
enter.enter()
enter.limit_memory(1 << 30)
for one in enter.seal():
    print(one.wall, one.holds)
"""


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_nothing_raises_and_no_essential_wall_is_claimed(platform):
    ended = subprocess.run(
        [sys.executable, "-P", "-c", ELSEWHERE.format(platform=platform)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    told = dict(line.split() for line in ended.stdout.splitlines())
    assert list(told) == [wall.id for wall in WALLS]
    assert {wall for wall, holds in told.items() if holds == "True"} <= {"traces"}


def test_a_wall_holds_by_any_one_of_its_ways():
    def reading(*steps: Step) -> Held:
        return next(one for one in held(steps) if one.wall == "reading")

    good, bad = Step(name="seal", ok=True), Step(name="landlock", ok=False, note="too old")
    assert reading(good, bad) == Held(
        wall="reading", holds=True, how="seal; without landlock: too old"
    )
    assert reading(bad) == Held(wall="reading", holds=False, how="seal: not yet; landlock: too old")


def test_neither_the_home_folder_nor_what_holds_it_is_ever_readable(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    library = tmp_path / "lib"
    library.mkdir()
    asked = [str(tmp_path), str(tmp_path.parent), "/", str(library), "/usr/lib"]
    assert landlock._given(asked) == [str(library), "/usr/lib"]


def test_what_else_stands_on_the_path_is_not_readable(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) not in landlock.libraries()
    assert str(ROOT) not in landlock.libraries()
    assert str(ROOT / "crowdgrad") in landlock.libraries()


ORPHAN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-P", "-c", sys.argv[1]], stdout=subprocess.PIPE)
print(child.stdout.readline().decode(), flush=True)
sys.stdin.read()
"""
WAITING = """
import os, sys, time
from crowdgrad.volunteer.sandbox import enter
enter.enter(); enter.seal()
os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""


@linux
def test_it_ends_when_its_starter_does(need):
    need("ending")
    starter = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, WAITING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.kill(pid, 0)
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _runs(pid):
        assert time.monotonic() < deadline, "it outlives its starter"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@linux
def test_from_outside_it_looks_as_it_says(standing):
    waiting = subprocess.Popen(
        [sys.executable, "-P", "-c", WAITING],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with waiting:
        assert waiting.stdout is not None
        at = Path(f"/proc/{int(waiting.stdout.readline())}")
        status = dict(
            line.split(":", 1) for line in (at / "status").read_text().splitlines() if ":" in line
        )
        seen = {
            "priority": int((at / "stat").read_text().rpartition(")")[2].split()[16]) >= 10,
            "rights": all(int(status[kind], 16) == 0 for kind in ("CapEff", "CapPrm", "CapInh"))
            and status["NoNewPrivs"].strip() == "1",
            "kernel": status["Seccomp"].strip() == "2",
            "traces": "Max core file size        0 " in (at / "limits").read_text(),
        }
        waiting.kill()
    assert seen == {wall: standing[wall].holds for wall in seen}


def test_the_walls_go_up_before_any_library_is_loaded():
    script = (
        "import sys; before = set(sys.modules); import crowdgrad.volunteer.start_trainer;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["crowdgrad"]
