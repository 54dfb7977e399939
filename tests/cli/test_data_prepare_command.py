"""`crowdgrad data prepare`, `show`, `verify`: what a person and a script get."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crowdgrad.data.folder import GROWING, chunk_path, is_folder, open_folder
from crowdgrad.errors import BadRecords, DataAltered, DataMalformed, DataMissing, UserError
from tests.cli.test_data_command import run

TABLE = "age,city,height,label\n" + "".join(
    f"{20 + n % 50},{'Cork' if n % 3 else 'Dublin'},{1.5 + n / 300:.3f},{('no', 'yes')[n % 2]}\n"
    for n in range(200)
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CROWDGRAD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text(TABLE)
    return tmp_path


def test_one_command_makes_a_table_ready_and_says_what_it_found(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("data", "prepare", "people.csv") == 0
    said = capsys.readouterr().out
    assert "160 train, 20 validation, 20 test records" in said
    assert "classes: no (100), yes (100)" in said
    assert "x holds age, city=Cork, city=Dublin, height" in said
    assert 'data = "people.prepared"' in said
    folder = open_folder(Path("people.prepared"))
    assert [(field.name, field.dtype, field.shape) for field in folder.manifest.fields] == [
        ("x", "float32", (4,)),
        ("y", "uint8", ()),
    ]
    page = Path("people.prepared/report.html").read_text()
    assert "Dublin" in page
    assert "people.csv" in page
    assert str(here) not in page, "where a file lies is nobody's business"


def test_every_guess_can_be_overruled(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("wishes.toml").write_text('title = "People"\nseed = 3\n[columns.city]\nencode = "code"\n')
    words = ("--config", "wishes.toml", "--target", "height", "--column", "label=drop",
             "--test", "50", "--validation", "0.2", "--no-normalise", "--licence", "CC0",
             "--seed", "4", "--json", "-", "--out", "mine")  # fmt: skip
    assert run("data", "prepare", "people.csv", *words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["title"] == "People"
    assert told["licence"] == "CC0"
    assert told["records"] == {"train": 110, "validation": 40, "test": 50}
    assert [(f["name"], f["dtype"], f["mean"]) for f in told["fields"]] == [
        ("x", "uint8", None),
        ("city", "uint8", None),
        ("y", "float32", None),
    ]
    assert told["reused"] is False
    assert {c["name"]: c["role"] for c in told["columns"]}["label"] == "drop"


def test_a_second_run_has_nothing_to_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "prepare", "people.csv", "--json", "-")
    first = json.loads(capsys.readouterr().out)
    run("data", "prepare", "people.csv", "--json", "-")
    again = json.loads(capsys.readouterr().out)
    assert again == {**first, "reused": True}
    run("data", "prepare", "people.csv")
    assert "is up to date" in capsys.readouterr().out


def test_looking_writes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.iterdir())
    assert run("data", "prepare", "people.csv", "--look") == 0
    said = capsys.readouterr().out
    assert "category" in said
    assert "Nothing was written" in said
    assert sorted(here.iterdir()) == before
    run("data", "prepare", "people.csv", "--look", "--json", "-")
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "table"
    assert [c["kind"] for c in told["columns"]] == ["number", "category", "number", "category"]


def test_bad_records_are_named_with_their_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("people.csv").open("a") as file:
        file.write("old,Cork,1.7,yes\n30,Cork,1.7\n")
    with pytest.raises(BadRecords, match="2 of 202 records are bad"):
        run("data", "prepare", "people.csv", "--json", "bad.json")
    said = capsys.readouterr().err
    assert "people.csv:202: not a number: age is 'old'" in said
    assert "people.csv:203: wrong number of columns" in said
    assert json.loads(Path("bad.json").read_text())["bad"] == {
        "not a number": 1,
        "wrong number of columns": 1,
    }
    assert not is_folder(Path("people.prepared"))
    with pytest.raises(BadRecords):
        run("data", "prepare", "people.csv", "--bad", "1")
    assert run("data", "prepare", "people.csv", "--bad", "2") == 0
    assert "left out: people.csv, line 202" in capsys.readouterr().out


def test_a_python_object_and_a_catalogue_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine_for_prepare.py").write_text(
        "def rows():\n    return [{'x': [n, n + 1], 'label': n % 2} for n in range(100)]\n"
    )
    assert run("data", "prepare", "mine_for_prepare:rows", "--out", "rows") == 0
    assert open_folder(Path("rows")).manifest.records("train") == 80
    assert run("data", "prepare", "digits") == 0
    folder = open_folder(Path("digits.prepared"))
    assert folder.manifest.card.classes == tuple("0123456789")
    assert folder.manifest.records("test") == 360


def test_show_and_verify(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "prepare", "people.csv")
    capsys.readouterr()
    assert run("data", "show", "people.prepared") == 0
    assert "float32 4" in capsys.readouterr().out
    assert run("data", "show", "people.prepared", "--record", "0:3", "--json", "-") == 0
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert record["y"] in ("yes", "no")
    with pytest.raises(UserError, match="no record 9:0"):
        run("data", "show", "people.prepared", "--record", "9:0")
    assert run("data", "show", "digits", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["records"] == {"train": 1437, "test": 360}
    assert run("data", "verify", "people.prepared") == 0
    assert "is whole" in capsys.readouterr().out
    folder = open_folder(Path("people.prepared"))
    path = chunk_path(folder.path, folder.manifest.shards[0].chunks[0].hash)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DataAltered, match="altered"):
        run("data", "verify", "people.prepared")
    with pytest.raises(DataMissing):
        run("data", "verify", "mnist", "--data-dir", str(here / "nothing"))


def test_mistakes_are_answered_with_what_to_do(here: Path) -> None:
    with pytest.raises(DataMissing, match="There is no"):
        run("data", "prepare", "nothing.csv")
    with pytest.raises(DataMalformed, match="no column 'colour'"):
        run("data", "prepare", "people.csv", "--target", "colour")
    with pytest.raises(UserError, match="--column age says nothing"):
        run("data", "prepare", "people.csv", "--column", "age")
    with pytest.raises(DataMalformed, match="these options"):
        run("data", "prepare", "people.csv", "--column", "age=colour")
    Path("full").mkdir()
    Path("full/letter.txt").write_text("dear")
    with pytest.raises(DataMalformed, match="holds other things"):
        run("data", "prepare", "people.csv", "--out", "full")


@pytest.mark.slow
def test_following_adds_what_is_appended_until_it_is_asked_to_stop(here: Path) -> None:
    log = Path("log.jsonl")
    log.write_text("".join(json.dumps({"a": n, "label": n % 2}) + "\n" for n in range(100)))
    command = [sys.executable, "-m", "crowdgrad", "data", "prepare", "log.jsonl", "--follow"]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert child.stdout is not None
        assert "80 records to train on" in child.stdout.readline()
        assert Path("log.prepared", GROWING).exists()
        with log.open("a") as file:
            file.write("".join(json.dumps({"a": n, "label": n % 2}) + "\n" for n in range(1500)))
        assert "1,580 records to train on" in child.stdout.readline()
        with log.open("a") as file:
            file.write('{"a": 7, "label": 1}\n')
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0
        assert "1,581 records" in child.stdout.read()
    finally:
        child.kill()
        child.communicate()
    folder = open_folder(Path("log.prepared"))
    assert folder.manifest.records("train") == 1581
    assert not folder.growing
