"""What is told of a child once it has ended is read once."""

from __future__ import annotations

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
