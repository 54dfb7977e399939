"""The documents say what the code does: every name in the code has its line, every link its target.

After datasette's `test_docs`: whoever adds a setting, error, message, option, key or route without
documenting it hears of it here. The matchmaker's own page is tested beside the matchmaker.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from time import time
from typing import Any, get_args

import pytest

import crowdgrad
from crowdgrad.capture.ready import KINDS
from crowdgrad.cli import bench
from crowdgrad.cli.main import parser
from crowdgrad.domain.job import StoppingRule
from crowdgrad.errors import CrowdgradError, tree
from crowdgrad.host.jobfile import KEYS, VOLUNTEER_KEYS
from crowdgrad.host.remote.api import create_app
from crowdgrad.host.remote.control import Control
from crowdgrad.host.setbacks import MAX_TRIES
from crowdgrad.host.telling.status import MemberStatus, Point, Status
from crowdgrad.host.telling.swarm_status import (
    Behind,
    SpreadSummary,
    SwarmFlow,
    SwarmMember,
    SwarmOthers,
    SwarmStatus,
)
from crowdgrad.host.updates import IGNORED
from crowdgrad.net.framing import HEADER_BYTES, MAGIC, MAX_FIRST_BODY_BYTES
from crowdgrad.net.messages import MAX_BODY_BYTES, MESSAGES, PROTOCOL
from crowdgrad.numerics.rules import OPTIMISERS, RULES
from crowdgrad.panel.app import Panel
from crowdgrad.panel.app import create_app as create_panel
from crowdgrad.planner.leases import Refusal
from crowdgrad.recipes import DEFAULT, RECIPES, from_table
from crowdgrad.recipes.describe import describe
from crowdgrad.settings import ENVIRONMENT_PREFIX, Settings
from crowdgrad.volunteer import talk
from crowdgrad.volunteer.governor import free
from crowdgrad.volunteer.remote import api as volunteer_api
from crowdgrad.volunteer.remote.desk import Desk, Work
from crowdgrad.volunteer.remote.status import (
    DataHere,
    JobDone,
    JobSeen,
    Line,
    Question,
    Totals,
    WorkStatus,
)
from tests.host import small

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "host": "host.md",
    "runs": "runs.md",
    "simulate": "simulation.md",
    "panel": "panel.md",
    "work": "volunteer.md",
    "doctor": "doctor.md",
    "hosts": "volunteer.md",
    "log": "volunteer.md",
    "matchmaker": "operate.md",
    "key": "keys.md",
    "relay": "relay.md",
    "server": "servers.md",
    "check": "host.md",
    "predict": "host.md",
    "recipes": "recipes.md",
    "data": "data.md",
    "data prepare": "prepare.md",
    "data show": "prepare.md",
    "data verify": "prepare.md",
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


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next of its level or above."""
    level = heading.partition(" ")[0]
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"there is no {heading}"
    return re.split(rf"\n#{{1,{len(level)}}} ", rest)[0]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


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


# -- settings, errors, job files --------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "slider"), [(kind.kind, slider) for kind in KINDS for slider in kind.sliders]
)
def test_every_slider_of_a_ready_made_model_has_a_row(kind, slider):
    text = section(doc("job-files.md"), "## `[model]`")
    row_with(text, f"| `{kind}` | `{slider.name}` | `{slider.default}` |", slider.help)


def test_the_job_file_on_its_page_is_sound():
    (text,) = blocks(doc("job-files.md"), "toml")
    table = tomllib.loads(text)
    assert set(table) == set(KEYS) - {"model"}, "it shows every key but the task's alternative"
    assert set(table["volunteers"]) == set(VOLUNTEER_KEYS)
    assert StoppingRule(**table["stop"])
    recipe = recipe_of(table)
    assert recipe != type(recipe)(), "it shows how hyperparameters are changed"
    assert any(isinstance(value, dict) for value in table["recipe"].values()), "nested ones too"


def recipe_of(table: dict[str, Any]) -> object:
    recipe = dict(table["recipe"])
    return from_table(recipe.pop("name"), recipe)


# -- recipes ----------------------------------------------------------------------------------

PARTS = {info.name: info.part for kind in RECIPES.values() for info in describe(kind) if info.part}


@cache
def shared_fields() -> dict[str, tuple[str, set[str]]]:
    """Of the table of fields that several recipes have: field → default, which recipes."""
    found = {}
    for row in rows(section(doc("recipes.md"), "## Fields of several recipes")):
        if len(cells(row)) == 4 and cells(row)[0].startswith("`"):
            name, default, where, _ = cells(row)
            named = set(re.findall(r"`(\w+)`", where))
            assert named <= set(RECIPES), row
            found[name.strip("`")] = default, set(RECIPES) - named if "all" in where else named
    return found


def own_fields(name: str) -> dict[str, str]:
    """Of a recipe's own table: field → default."""
    here = [cells(row) for row in rows(section(doc("recipes.md"), f"### `{name}`"))]
    return {row[0].strip("`"): row[1] for row in here if row[0].startswith("`")}


@pytest.mark.parametrize("name", RECIPES)
def test_every_field_of_a_recipe_has_a_row_with_its_default(name):
    documented = {f: default for f, (default, names) in shared_fields().items() if name in names}
    twice = documented.keys() & own_fields(name).keys()
    assert not twice, "in its own table or in that of several recipes, not in both"
    documented |= own_fields(name)
    wanted = {
        info.name: "a table" if info.part else f"`{info.default_text}`"
        for info in describe(RECIPES[name])
    }
    assert documented == wanted


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_what_it_does_and_when_to_choose_it(name):
    kind, text = RECIPES[name], section(doc("recipes.md"), "## Which one")
    row = row_with(text, f"| [`{name}`](#{name})", f"| {kind.sentence} |", f"| {kind.when} |")
    assert ("(the default)" in row) == (name == DEFAULT)
    equation = [line for line in section(doc("recipes.md"), f"### `{name}`").splitlines()
                if line.startswith("    ") and "←" in line]  # fmt: skip
    assert equation
    row_with(doc("python.md"), f"| **`cg.{kind.__name__}`** |")
    assert f"`{name}`" in section(doc("job-files.md"), "## `[recipe]`")


@pytest.mark.parametrize("name", PARTS)
def test_every_part_of_recipes_has_a_table_with_its_defaults(name):
    text = doc("recipes.md")
    assert f"`[recipe.{name}]`" in text
    assert f"`cg.{PARTS[name].__name__}(…)`" in text
    _, _, table = text.partition(f"| field of {name} | default | what it is |\n")
    here = [cells(row) for row in table.partition("\n\n")[0].splitlines()[1:]]
    assert [(row[0], row[1]) for row in here] == [
        (f"`{info.name}`", f"`{info.default_text}`") for info in describe(PARTS[name])
    ]
    for info, row in zip(describe(PARTS[name]), here, strict=True):
        assert all(f"`{choice}`" in row[2] for choice in info.choices)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_rule_and_its_fields_have_rows(rule):
    text = section(doc("recipes.md"), "## Rules")
    row = row_with(text, f"| `{rule.name}` | `{rule.__name__}` | {rule.sentence} |")
    assert ("←" in row or "adam with" in row) == (rule.name in OPTIMISERS), "its equation"
    here = [cells(row) for row in rows(text) if cells(row)[0] == f"`{rule.name}`"]
    documented = [(row[1], row[2]) for row in here if row[2].startswith("`")]
    assert documented == [(f"`{info.name}`", f"`{info.default_text}`") for info in describe(rule)]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_is_named_where_python_is_explained(name):
    assert f"`{RULES[name].__name__}`" in doc("python.md")


@pytest.mark.parametrize("page", ["recipes.md", "job-files.md"])
def test_recipes_written_in_toml_can_be_read(page):
    found = [tomllib.loads(text) for text in blocks(doc(page), "toml")]
    recipes = [recipe_of(table) for table in found if "recipe" in table]
    assert recipes
    for recipe in recipes:
        assert recipe != type(recipe)()


@pytest.mark.parametrize("page", ["recipes.md", "python.md"])
def test_recipes_written_in_python_can_be_made(page):
    code = [text for text in blocks(doc(page), "python") if text.startswith("recipe = ")
            or "\nrecipe = " in text]  # fmt: skip
    assert code
    for text in code:
        names: dict[str, Any] = {"cg": crowdgrad}
        exec(text, names)
        assert type(names["recipe"]) in RECIPES.values()


def test_how_often_training_goes_back_is_said():
    told = {4: "four"}[MAX_TRIES]
    assert f"up to {told} times" in " ".join(doc("recipes.md").split())
    assert f"after {told} times" in " ".join(doc("host.md").split())


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


@pytest.mark.parametrize("verdict", sorted({*get_args(Refusal), *IGNORED}))
def test_every_verdict_is_explained_and_says_whether_anybody_is_to_blame(verdict):
    row = row_with(doc("protocol.md"), f"| `{verdict}` |")
    assert ("| ignored: " in row) == (verdict in IGNORED)


@pytest.mark.parametrize(
    "message",
    [*get_args(talk.ToTrainer), *get_args(talk.ToAgent)],
    ids=lambda message: message.__name__,
)
def test_everything_said_inside_a_volunteer_has_a_row_with_its_sentence(message):
    who, _, sentence = inspect.getdoc(message).rstrip(".").partition(": ")
    text = section(doc("protocol.md"), "## Inside a volunteer")
    row = row_with(text, f"| `{message.__name__}` | {who.lower()} |")
    assert sentence[:1].lower() + sentence[1:] in row


# -- HTTP -------------------------------------------------------------------------------------


def test_every_route_of_the_host_has_a_row():
    def never() -> Status:
        raise AssertionError("nobody asks")

    control = Control(small.training(), lambda: 0.0, asyncio.Event())
    for route, methods in create_app(never, control, "").openapi()["paths"].items():
        for method in methods:
            row_with(doc("host.md"), f"`{method.upper()} {route}`")


def test_every_route_of_the_volunteer_has_a_row():
    work = Work(name="", key="", governor=free(), totals=Totals, leave=list, stop=list)
    for route, methods in volunteer_api.create_app(Desk(work, time), "").openapi()["paths"].items():
        for method in methods:
            row_with(doc("volunteer.md"), f"`{method.upper()} {route}`")


@pytest.mark.parametrize("kind", [WorkStatus, JobSeen, JobDone, Question, Line, Totals, DataHere])
def test_every_field_of_the_work_is_documented(kind):
    table = "\n".join(rows(section(doc("volunteer.md"), "### The HTTP API")))
    assert not [field.name for field in fields(kind) if f"`{field.name}`" not in table]


def test_every_route_of_the_panel_has_a_row(tmp_path):
    async def made() -> dict[str, Any]:
        panel = Panel(Settings(home=tmp_path), runs=tmp_path, scratch=tmp_path)
        return create_panel(panel).openapi()["paths"]

    for route, methods in asyncio.run(made()).items():
        for method in methods:
            row_with(doc("panel.md"), f"`{method.upper()} {route}`")


SWARM = (SwarmStatus, SwarmMember, SwarmOthers, SwarmFlow)
TOLD = (Status, MemberStatus, Point, SpreadSummary, Behind)


@pytest.mark.parametrize("kind", [*TOLD, *SWARM], ids=lambda kind: kind.__name__)
def test_every_field_of_the_status_is_documented(kind):
    text = doc("host.md")
    table = "\n".join(rows(section(text, "### How the data spreads") if kind in SWARM else text))
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
    page = doc(PAGES.get(name) or PAGES[name.split()[0]])
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
