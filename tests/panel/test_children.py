"""What is told of a child once it has ended is read once."""

from __future__ import annotations

import json
from pathlib import Path

from crowdgrad.panel import children as children_module
from crowdgrad.panel.children import Children


def test_how_a_child_ended_stays_though_its_files_go(tmp_path):
    children = Children(tmp_path, lambda told: None)
    child = children.start("host", ["host", str(tmp_path / "none.toml")])
    assert child.child.wait(60)
    (before,) = children.states()
    assert (before.state, before.error and before.error.code[:2]) == ("failed", "CG")
    for file in tmp_path.iterdir():
        file.unlink()
    assert children.states() == (before,)


def test_a_long_log_begins_anew_and_goes_with_the_child(tmp_path, monkeypatch):
    monkeypatch.setattr(children_module, "MOST_LOG_BYTES", 100)
    monkeypatch.setattr(children_module, "MOST_ENDED", 1)
    children = Children(tmp_path, lambda told: None)
    child = children.start("host", ["host", str(tmp_path / "none.toml")])
    log = tmp_path / f"{child.id}.log"
    with log.open("ab") as file:
        file.write(b"x" * 200 + b"\nThe last line\n")
        file.flush()
        assert child.state().doing == "The last line"
        assert log.stat().st_size == 0
        assert child.state().doing == "The last line", "until it says something else"
    assert child.child.wait(60)
    second = children.start("host", ["host", str(tmp_path / "none.toml")])
    assert log.exists(), "its end is still told"
    assert second.child.wait(60)
    third = children.start("host", ["host", str(tmp_path / "none.toml")])
    assert not log.exists()
    assert third.child.wait(60)
    children.look()


def test_what_one_that_ended_said_last_is_read_before_its_log_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(children_module, "MOST_LOG_BYTES", 100)
    children = Children(tmp_path, lambda told: None)
    child = children.start("host", ["host", str(tmp_path / "none.toml")])
    assert child.child.wait(60)
    log = tmp_path / f"{child.id}.log"
    log.write_bytes(b"x" * 200 + b"\n" + log.read_bytes())
    (told,) = children.states()
    assert told.error is not None
    assert "none.toml" in told.error.message
    assert log.stat().st_size == 0


def test_files_that_go_while_they_are_looked_for_end_nothing(tmp_path, monkeypatch):
    """A child takes its announcement away as it ends."""
    children = Children(tmp_path, lambda told: None)
    child = children.start("work", ["work", "--nonsense"])
    assert child.child.wait(60)
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    (tmp_path / f"{child.id}.log").unlink()
    assert children.states()[0].state == "failed"


def test_who_begins_again_is_known_until_it_has_begun(tmp_path, monkeypatch):
    children = Children(tmp_path, lambda told: None)
    run, other = tmp_path / "run", tmp_path / "other"
    child = children.start("host", ["host", "--resume", str(run)])
    monkeypatch.setattr(type(child), "alive", property(lambda started: True))
    monkeypatch.setattr(type(child.child), "code", property(lambda started: None))
    assert (children.begins_again(run), children.begins_again(other)) == (True, False)
    child.announced.write_text(json.dumps({"folder": str(run), "title": "Digits\n& more"}))
    assert not children.begins_again(run)
    assert (child.state().run, child.state().title) == ("run", "Digits & more")
    monkeypatch.undo()
    assert child.child.wait(60)
    children.look()
