"""`crowdgrad recipes`: what a person and a script get."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from crowdgrad.cli.main import main
from crowdgrad.recipes import DEFAULT, RECIPES, from_table
from crowdgrad.recipes.describe import describe

pytestmark = pytest.mark.usefixtures("like_a_process_of_its_own")


def words(text: str) -> str:
    """Without regard to where lines are broken."""
    return " ".join(text.split())


def test_all_recipes_with_when_to_use_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    said = words(capsys.readouterr().out)
    for name, kind in RECIPES.items():
        mark = " (the default)" if name == DEFAULT else ""
        told = f"{name}{mark} {kind.sentence} When: {kind.when} Python: cg.{kind.__name__}(…)"
        assert told in said
    assert "crowdgrad recipes NAME" in said


@pytest.mark.parametrize("name", RECIPES)
def test_one_recipe_with_every_hyperparameter(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipes", name]) == 0
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.splitlines())
    assert f"{name}: {RECIPES[name].sentence}" in words(said)
    assert RECIPES[name].when in words(said)
    _, plain, *parts, example, _ = said.split("\n\n")
    infos = describe(RECIPES[name])
    assert rows(plain) == [(one.name, one.default_text) for one in infos if not one.part]
    for info, paragraph in zip([one for one in infos if one.part], parts, strict=True):
        heading, _, table = paragraph.partition("\n")
        assert heading == f"{info.name}: {info.what}"
        assert info.part is not None
        assert rows(table) == [(one.name, one.default_text) for one in describe(info.part)]
    assert example == "In a job file:"
    assert all(other not in said.split() for other in RECIPES.keys() - {name})


def rows(table: str) -> list[tuple[str, str]]:
    """Names and defaults; a line that goes on with a description begins with a space."""
    return [(line.split()[0], line.split()[1]) for line in table.splitlines() if line[:1].strip()]


def test_what_a_hyperparameter_does_is_told_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "synchronous"]) == 0
    table = capsys.readouterr().out.split("\n\n")[1]
    told = " ".join(line[line.index("  ") :].strip() for line in table.splitlines())
    for info in describe(RECIPES["synchronous"]):
        if info.part is None:
            assert info.what in words(told)


@pytest.mark.parametrize("name", RECIPES)
def test_what_it_shows_for_a_job_file_works_in_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipes", name]) == 0
    _, _, example = capsys.readouterr().out.partition("In a job file:\n")
    table = tomllib.loads(example)["recipe"]
    assert table.pop("name") == name
    recipe = from_table(name, table)
    assert type(recipe) is RECIPES[name]

    own = {info.name: info.default for info in describe(RECIPES[name])}
    assert len(table) > 4
    assert table.keys() <= own.keys()
    assert table.pop("schedule") == {"shape": "cosine", "warmup_epochs": 1}
    ruled = {"rule", "local_rule"}
    assert bool(ruled & table.keys()) == bool(ruled & own.keys())
    changed = {key for key, value in table.items() if value != own[key]}
    assert changed <= ruled, "else the defaults, to be changed"


def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == list(RECIPES)
    assert [name for name, one in told.items() if one["default"]] == [DEFAULT]
    for name, kind in RECIPES.items():
        one = told[name]
        assert (one["sentence"], one["when"]) == (kind.sentence, kind.when)
        assert one["python"] == f"cg.{kind.__name__}"
        assert list(one["fields"]) == [info.name for info in describe(kind)]


def test_json_of_one_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "downpour", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["downpour"]
    fields = told["downpour"]["fields"]
    assert fields["push_every"] == {
        "what": "Batches whose gradients are added up before they are sent.", "default": 4
    }  # fmt: skip
    assert fields["rule"]["default"] == "adagrad"
    assert "nadam" in fields["rule"]["choices"]
    assert fields["assignment"]["choices"] == ["leases", "segments"]
    assert "default" not in fields["schedule"]
    assert fields["schedule"]["fields"]["scale_with_volunteers"]["default"] is False
    assert fields["schedule"]["fields"]["shape"]["choices"] == ["constant", "step", "cosine"]


def test_json_into_a_file_and_words_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "recipes.json"
    assert main(["recipes", "crowd", "--json", str(target)]) == 0
    assert capsys.readouterr().out.startswith("crowd")
    assert list(json.loads(target.read_text())) == ["crowd"]


@pytest.mark.parametrize("more", [[], ["--json", "-"]])
def test_a_name_that_is_none_is_answered_with_those_that_are(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipes", "Downpour", *more]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("crowdgrad: [CG102] There is no recipe 'Downpour'.")
    assert len(said.err.splitlines()) == 1
    assert all(name in said.err for name in RECIPES)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["recipes", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "[recipe] name" in said
    assert "cg.Downpour" in said
    with pytest.raises(SystemExit) as caught:
        main(["recipes", "downpour", "crowd"])
    assert caught.value.code == 2
