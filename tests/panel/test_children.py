"""What is told of a child once it has ended is read once."""

from __future__ import annotations

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
