"""The documents say what the code does: every name in the code has its line, every link its target.

After datasette's `test_docs`: whoever adds a setting, error, message, option, key or route without
documenting it hears of it here. The matchmaker's own page is tested beside the matchmaker.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import crowdgrad
from crowdgrad.cli import bench
from crowdgrad.cli.main import parser
from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import CrowdgradError, tree
from crowdgrad.host.api import create_app
from crowdgrad.host.jobfile import KEYS, VOLUNTEER_KEYS
from crowdgrad.host.status import MemberStatus, Point, Status
from crowdgrad.net.framing import HEADER_BYTES, MAGIC, MAX_FIRST_BODY_BYTES
from crowdgrad.net.messages import MAX_BODY_BYTES, MESSAGES, PROTOCOL
from crowdgrad.planner.leases import Refusal
from crowdgrad.recipes import RECIPES
from crowdgrad.settings import ENVIRONMENT_PREFIX, Settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "host": "host.md",
    "work": "volunteer.md",
    "matchmaker": "matchmaker.md",
    "check": "host.md",
    "data": "data.md",
    "demo": "index.md",
    "bench": "index.md",
    "settings": "settings.md",
}
"""Where each command is explained; a command without a page fails."""


def doc(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str) -> list[str]:
    """The lines of a page's tables."""
    return [line for line in text.splitlines() if line.startswith("|")]


def row_with(text: str, *cells: str) -> str:
    found = [line for line in rows(text) if all(cell in line for cell in cells)]
    assert found, f"no table row holds {cells}"
    return found[0]


def committed() -> list[Path]:
    """Every file git knows, and every new one it does not ignore."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def pages() -> list[Path]:
    return [file for file in committed() if file.suffix == ".md"]


# -- settings, errors, recipes, job files -----------------------------------------------------


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda field: field.name)
def test_every_setting_has_a_row_with_its_variable_and_default(setting):
    default = str(getattr(Settings(), setting.name)) or "empty"
    row_with(
        doc("settings.md"),
        f"`{setting.name}`",
        f"`{ENVIRONMENT_PREFIX}{setting.name.upper()}`",
        default,
    )


@pytest.mark.parametrize("error", tree(CrowdgradError), ids=lambda error: error.code)
def test_every_error_is_named_beside_its_code(error):
    text = doc("errors.md")
    if error.code.endswith("00"):
        assert re.search(rf"`{error.code}`\s+`{error.__name__}`", text)
    else:
        row_with(text, f"`{error.code}`", f"`{error.__name__}`")


def test_no_error_is_documented_that_does_not_exist():
    known = {error.code for error in tree(CrowdgradError)}
    for page in pages():
        found = set(re.findall(r"CG\d{3}", page.read_text(encoding="utf-8")))
        assert found <= known, f"{page.name} names {sorted(found - known)}"


@pytest.mark.parametrize(
    "key", [*KEYS, *VOLUNTEER_KEYS, *(field.name for field in fields(StoppingRule))]
)
def test_every_key_of_a_job_file_has_a_row(key):
    row_with(doc("job-files.md"), f"| `{key}` |")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_and_its_fields_are_documented(name):
    text = doc("job-files.md")
    assert f"**`{name}`**" in text
    for field in fields(RECIPES[name]):
        row_with(text, f"| `{field.name}` | `{field.default}` |")


# -- the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_message_has_a_row_with_its_kind_and_sentence(message):
    sentence = inspect.getdoc(message).partition(": ")[2].rstrip(".")
    row = row_with(doc("protocol.md"), f"| {message.kind} | `{message.__name__}` |")
    assert sentence in row


def test_the_frame_is_documented_as_it_is():
    text = doc("protocol.md")
    assert f"A header of {HEADER_BYTES} bytes" in text
    assert f"magic `{MAGIC.decode()}`" in text
    assert f"The protocol is {PROTOCOL[0]}.{PROTOCOL[1]}." in text
    assert f"| body | {MAX_BODY_BYTES >> 20} MiB |" in text
    assert f"is admitted | {MAX_FIRST_BODY_BYTES >> 10} KiB |" in text


@pytest.mark.parametrize("verdict", get_args(Refusal))
def test_every_refusal_is_explained(verdict):
    row_with(doc("protocol.md"), f"| `{verdict}` |")


# -- HTTP -------------------------------------------------------------------------------------


def test_every_route_of_the_host_has_a_row():
    def never() -> Status:
        raise AssertionError("nobody asks")

    for route in create_app(never).openapi()["paths"]:
        row_with(doc("host.md"), f"`GET {route}`")


@pytest.mark.parametrize("kind", [Status, MemberStatus, Point], ids=lambda kind: kind.__name__)
def test_every_field_of_the_status_is_documented(kind):
    table = "\n".join(rows(doc("host.md")))
    missing = [field.name for field in fields(kind) if f"`{field.name}`" not in table]
    assert not missing


# -- commands ---------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield from _subcommands(parser(), "")


def _subcommands(
    of: argparse.ArgumentParser, prefix: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield f"{prefix}{name}", command
                yield from _subcommands(command, f"{prefix}{name} ")


def _id(value: object) -> str:
    return value if isinstance(value, str) else "options"


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=_id)
def test_every_command_and_option_is_on_its_page(name, command):
    page = doc(PAGES[name.split()[0]])
    assert f"crowdgrad {name}" in page
    assert f"crowdgrad {name}" in doc("index.md")
    options = {option for action in command._actions for option in action.option_strings}
    missing = {option for option in options - {"-h", "--help"} if option not in page}
    assert not missing


def test_the_options_of_crowdgrad_itself_are_documented():
    options = {option for action in parser()._actions for option in action.option_strings}
    text = doc("index.md")
    assert not {option for option in options - {"-h"} if option not in text}


@pytest.mark.parametrize("name", bench.names())
def test_every_benchmark_has_a_row(name):
    row_with(doc("index.md"), f"| `{name}` |")


def test_every_command_in_the_documents_exists():
    known = {name.split()[0] for name, _ in commands()}
    for page in pages():
        for line in _code(page.read_text(encoding="utf-8")):
            for word in re.findall(r"(?:^|\$ | {4})crowdgrad ([a-z]+)\b", line):
                assert word in known, f"{page.name}: crowdgrad {word}"


def _code(text: str) -> Iterator[str]:
    """What the reader may type: indented lines and words in backticks."""
    for line in text.splitlines():
        if line.startswith("    "):
            yield line.partition("  #")[0]
        yield from re.findall(r"`([^`]+)`", line)


# -- Python -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", crowdgrad.__all__)
def test_every_public_name_is_documented(name):
    assert f"**`cg.{name}" in doc("python.md") or f"`cg.{name}`**" in doc("python.md")


def test_every_argument_of_train_has_a_row():
    table = "\n".join(rows(doc("python.md")))
    missing = [n for n in inspect.signature(crowdgrad.train).parameters if f"`{n}`" not in table]
    assert not missing


def test_the_ten_lines_are_the_same_everywhere():
    script = (ROOT / "examples/ten_lines.py").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", DOCS / "python.md"):
        block = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0]
        lines = [line for line in block.splitlines() if " = " in line]
        assert len(lines) == 5
        for line in lines:
            assert line in script, f"{page.name}: {line}"


# -- the documents themselves -----------------------------------------------------------------


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_relative_link_resolves():
    for page in pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.name} links to {target}"
            assert file.is_relative_to(ROOT), f"{page.name} links outside: {target}"
            if anchor:
                assert anchor in _anchors(file), f"{page.name} links to {target}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
            for heading in headings}  # fmt: skip


def test_every_path_the_documents_name_exists():
    start = r"(?:crowdgrad|tests|docs|examples|benchmarks|scripts|\.ci)/"
    for page in pages():
        for path in re.findall(rf"`({start}[^`\s]*)`", page.read_text(encoding="utf-8")):
            if re.search(r"[<>*…]|NAME", path):
                continue
            assert (ROOT / path.partition("::")[0]).exists(), f"{page.name} names {path}"


def test_every_test_the_architecture_names_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^`\s]+)::(\w+)`", text)
    assert named
    for path, name in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"def {name}\(|class {name}\b", source), f"{path} has no {name}"


def test_every_contract_of_the_layers_is_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = re.findall(r"contracts\]\]\nname = \"(.*)\"", project)
    assert contracts
    assert not [name for name in contracts if name not in text]


def test_every_package_has_its_place_in_both_maps():
    packages = [file.parent.name for file in (ROOT / "crowdgrad").glob("*/__init__.py")]
    assert packages
    for page in ("README.md", "ARCHITECTURE.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert not [name for name in packages if f"`crowdgrad/{name}/`" not in text], page


def test_every_module_beside_the_packages_is_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = [file.name for file in (ROOT / "crowdgrad").glob("[!_]*.py")]
    assert not [name for name in modules if f"`crowdgrad/{name}`" not in text]


def test_the_layers_are_drawn_as_they_are_checked():
    drawn = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = " ".join(drawn[drawn.index("__main__ > cli") :].partition("\n\n")[0].split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    # Layers in brackets are reserved for what is not there yet.
    here = [[part for part in layer.split(" | ") if not part.startswith("(")] for layer in layers]
    assert drawn == " > ".join(" | ".join(parts) for parts in here if parts)


def test_the_scripts_the_documents_name_can_be_run():
    named: set[str] = set()
    for page in pages():
        named.update(re.findall(r"\./(scripts/\w+)", page.read_text(encoding="utf-8")))
    assert {"scripts/demo", "scripts/test", "scripts/check"} <= named
    for script in named:
        assert os.access(ROOT / script, os.X_OK), script


def test_no_file_names_a_path_of_this_machine_or_a_registry():
    folders = {ROOT, ROOT.parent, Path.home()} - {Path("/"), Path(tempfile.gettempdir())}
    paths = "|".join(rf"(?<![\w.]){re.escape(str(folder))}/" for folder in folders)
    # Host names in parts, so that this file does not find itself.
    hosts = r"\b(py" + r"pi\.org|python" + r"hosted|npm" + r"js\.|download\.py" + r"torch)"
    forbidden = re.compile(f"{paths}|{hosts}")
    for file in committed():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = forbidden.search(text)
        assert found is None, f"{file.relative_to(ROOT)} holds {found and found[0]}"
