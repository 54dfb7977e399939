"""What people give by mistake ends in words that help: what, where, and what to do next."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Running, panel, until
from tests.pages.people import Visitor, visitor
from tests.panel.living import STUBBORN

pytestmark = [needs_chromium, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with panel(tmp_path_factory.mktemp("bad") / "panel") as found:
        yield found


@pytest.fixture
def owner(browser: Browser, running: Running) -> Iterator[Visitor]:
    with visitor(browser, running.url) as found:
        yield found


def rows(count: int) -> str:
    return "x,y\n" + "".join(f"{n},{n % 3}\n" for n in range(count))


def test_a_broken_row_is_named_and_may_be_left_out(owner: Visitor, tmp_path: Path) -> None:
    (tmp_path / "broken.csv").write_text(f"{rows(60)}7\n")
    owner.go("Host")
    owner.see("file-input").set_input_files(tmp_path / "broken.csv")
    owner.is_told("broken.csv, line 62", "leave such records out", "CG404")
    expect(owner.page.get_by_text("line 62")).to_have_count(1)  # and not twice in one message
    owner.press("skip-bad")
    owner.waits_for("data-preview", "60 records")
    owner.waits_for("data-problems", "1 record left out")
    expect(owner.page.get_by_role("alert")).to_have_count(0)


def test_a_broken_row_may_be_left_out_after_a_reload(
    owner: Visitor, running: Running, tmp_path: Path
) -> None:
    (tmp_path / "long.csv").write_text(f"{rows(1_000_000)}7\n")
    owner.go("Host")
    owner.see("data-path").fill(str(tmp_path / "long.csv"))
    owner.page.get_by_role("button", name="Use it").click()
    until(running.at_work, "the data is read")
    owner.page.reload()
    owner.is_told("long.csv, line 1000002", "CG404")
    owner.press("skip-bad")
    owner.waits_for("data-preview", "1 million records")


def test_what_was_agreed_to_counts_for_that_data_only(owner: Visitor, tmp_path: Path) -> None:
    (tmp_path / "private.csv").write_text(rows(60))
    owner.choose("digits")
    owner.press("reach-network")
    owner.press("agree")
    expect(owner.see("start-hosting")).to_be_enabled()
    owner.see("file-input").set_input_files(tmp_path / "private.csv")
    owner.waits_for("data-preview", "60 records")
    expect(owner.see("agree")).not_to_be_checked()
    expect(owner.see("start-hosting")).to_be_disabled()


def test_hidden_files_of_a_folder_are_left_out(owner: Visitor, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/.DS_Store").write_bytes(b"\0")
    owner.go("Host")
    owner.see("folder-input").set_input_files(tmp_path / "set")
    owner.is_told("There is no file in it.", "begin with a dot")
    (tmp_path / "set/table.csv").write_text(rows(60))
    owner.see("folder-input").set_input_files(tmp_path / "set")
    owner.waits_for("data-preview", "60 records")
    expect(owner.page.get_by_role("alert")).to_have_count(0)


def test_what_is_dropped_beside_its_place_is_not_opened(owner: Visitor) -> None:
    owner.go("Host")
    expect(owner.see("drop-zone")).to_be_visible()
    for name in ("dragover", "drop"):
        event = f"new DragEvent('{name}', {{bubbles: true, cancelable: true}})"
        for where in ("document.body", "document.querySelector('[data-testid=drop-zone]')"):
            assert owner.page.evaluate(f"{where}.dispatchEvent({event})") is False, (
                "it is prevented"
            )


def test_files_and_paths_that_are_none(owner: Visitor, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "odd.exe").write_bytes(b"MZ\0")
    owner.go("Host")
    owner.see("file-input").set_input_files(tmp_path / "empty.csv")
    owner.is_told("empty.csv has no line", "Give a table with records")
    owner.see("file-input").set_input_files(tmp_path / "odd.exe")
    owner.is_told("odd.exe", "We read", ".csv")
    use = owner.page.get_by_role("button", name="Use it")
    expect(use).to_be_disabled()
    owner.see("data-path").fill(str(tmp_path / "nowhere.csv"))
    use.click()
    owner.is_told("nowhere.csv", "Give a path")
    expect(owner.see("start-hosting")).to_be_disabled()
    expect(owner.page.get_by_text("Choose data first.")).to_be_visible()


def test_a_column_that_is_not_there(owner: Visitor, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(rows(60))
    owner.go("Host")
    owner.see("data-target").fill("z")
    owner.see("data-path").fill(str(tmp_path / "table.csv"))
    owner.page.get_by_role("button", name="Use it").click()
    owner.is_told("there is no column 'z'", "The columns are 'x', 'y'")


def test_data_that_no_ready_made_model_reads(owner: Visitor, tmp_path: Path) -> None:
    x, y = np.zeros((60, 2, 2, 2, 2), np.float32), np.arange(60) % 3
    np.savez(tmp_path / "odd.npz", x=x, y=y)
    owner.go("Host")
    owner.see("file-input").set_input_files(tmp_path / "odd.npz")
    owner.waits_for("no-model", "No ready-made model reads this data")
    expect(owner.see("model-own")).to_be_checked()
    expect(owner.see("task")).to_be_visible()
    owner.choose("digits")
    expect(owner.see("model-mlp")).to_be_checked()
    expect(owner.see("no-model")).to_have_count(0)


def test_models_of_ones_own_that_cannot_travel(owner: Visitor, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    owner.choose("digits")
    owner.press("model-own")
    expect(owner.page.get_by_text("Name your model as module:object.")).to_be_visible()
    owner.see("task").fill("nowhere:task")
    owner.see("task-folder").fill(str(tmp_path))
    owner.press("check-model")
    report = owner.waits_for("check-report", "This model could not be read")
    expect(report).to_contain_text("No module named 'nowhere'")
    expect(report).to_contain_text(f"It is looked for in {tmp_path}")
    owner.see("task").fill("stubborn:task")
    owner.press("check-model")
    owner.waits_for("check-report", "This model cannot travel")
    expect(report).to_contain_text("stubborn.py:13")
    expect(report).to_contain_text("Try the model with torch.export.export alone.")


def test_a_number_that_a_recipe_cannot_have(owner: Visitor, running: Running) -> None:
    owner.choose("digits")
    owner.press("recipe-async_sgd")
    owner.page.get_by_text("Further fields of this recipe").click()
    owner.page.get_by_label("rule", exact=True).select_option("momentum")
    owner.page.get_by_label("batches_per_unit").fill("-3")
    owner.press("start-hosting")
    owner.is_told("-3 batches per unit is not between 1 and", "Change that", "CG102")
    expect(owner.see("start-hosting")).to_be_enabled()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("http://", ("is not the link of a job", "Copy it again")),
        ("--yes", ("is no job", "Give a code or a link")),
        ("127.0.0.1:1", ("127.0.0.1:1", "CG2")),
    ],
)
def test_nonsense_in_place_of_a_code(owner: Visitor, code: str, words: tuple[str, ...]) -> None:
    owner.go("Lend")
    owner.page.get_by_text("Help somebody in particular").click()
    owner.see("work-target").fill(code)
    owner.press("start-lending")
    owner.is_told(*words)
    expect(owner.see("start-lending")).to_be_enabled()


def test_a_busy_port_is_said_in_the_terminal(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = subprocess.run(
            [sys.executable, "-m", "crowdgrad", "panel", "--port", port, "--home", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert told.returncode != 0
    assert f"127.0.0.1:{port}" in told.stderr
    assert "Choose another with --port" in told.stderr
    assert "Traceback" not in told.stderr
