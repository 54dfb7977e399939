"""A draft becomes the job file that says the same."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from crowdgrad.cli.main import parser
from crowdgrad.errors import JobFileError, UserError
from crowdgrad.panel.api.jobs import SaveWish, at_terminal
from crowdgrad.panel.jobs import Draft, Stop, Volunteers, save, save_to_check, to_toml
from crowdgrad.settings import Settings


def test_a_draft_is_written_with_what_it_says_and_no_more():
    draft = Draft(
        title="Digits",
        data="digits",
        model={"kind": "mlp", "width": 16},
        recipe={"name": "async_sgd", "lr": 0.1, "schedule": {"shape": "cosine"}},
        stop=Stop(epochs=3, target=0.9),
        volunteers=Volunteers(maximum=10, invited=("ab" * 8,)),
    )
    assert tomllib.loads(to_toml(draft)) == {
        "title": "Digits",
        "data": "digits",
        "seed": 0,
        "model": {"kind": "mlp", "width": 16},
        "recipe": {"name": "async_sgd", "lr": 0.1, "schedule": {"shape": "cosine"}},
        "stop": {"epochs": 3, "target": 0.9},
        "volunteers": {"minimum": 0, "maximum": 10, "invited": ["ab" * 8]},
    }


def test_a_draft_has_one_model():
    for models in ({}, {"task": "a:b", "model": {"kind": "mlp"}}):
        with pytest.raises(JobFileError, match="one model"):
            to_toml(Draft(title="", data="digits", **models))


@pytest.mark.parametrize("more", [{"stop": {"epoch": 3}}, {"volunteers": {"most": 3}}, {"sed": 1}])
def test_what_a_job_file_does_not_know_is_no_draft(more):
    with pytest.raises(ValidationError, match="Unexpected keyword"):
        TypeAdapter(Draft).validate_python({"title": "", "data": "digits", **more})


READY = Draft(title="Digits", data="digits", model={"kind": "mlp"})
USUAL = Settings(home=Settings().home.expanduser())
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
VALUES = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), TEXTS
)


@given(TEXTS.filter(bool), TEXTS, st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES)))
def test_whatever_is_typed_the_file_says_it(title, description, recipe):
    draft = Draft(title=title, data="digits", description=description, task="a:b", recipe=recipe)
    told = tomllib.loads(to_toml(draft))
    assert (told["title"], told.get("description", "")) == (title, description)
    assert told.get("recipe", {}) == recipe


@pytest.mark.parametrize("recipe", [{"a b": 1}, {"": 1}, {"lr]\n[x": 1}, {"lr": {"a.b": 1}}])
def test_what_is_no_key_is_refused(recipe):
    with pytest.raises(JobFileError, match="no key"):
        to_toml(Draft(title="", data="digits", task="a:b", recipe=recipe))


def test_half_a_character_is_refused():
    with pytest.raises(JobFileError, match="Half a character"):
        to_toml(Draft(title="\ud800", data="digits", task="a:b"))


def test_tables_in_tables_have_an_end():
    deep: object = 1
    for _ in range(500):
        deep = {"a": [deep]}
    with pytest.raises(JobFileError, match="Tables in tables"):
        to_toml(Draft(title="", data="digits", task="a:b", recipe={"a": deep}))


def test_a_file_that_says_something_else_stays(tmp_path):
    (tmp_path / "job.toml").write_text("title = 'by hand'")
    draft = Draft(title="Digits", data="digits", task="a:b", folder=str(tmp_path))
    first = save(draft, tmp_path / "home")
    assert first == tmp_path / "job-2.toml"
    assert save(draft, tmp_path / "home") == first, "it says the same"
    assert save(replace(draft, seed=1), tmp_path / "home", str(tmp_path)).name == "job-3.toml"
    assert (tmp_path / "job.toml").read_text() == "title = 'by hand'"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("folder", ["~nobody-of-that-name/x", "a\0b", "\ud800"])
def test_what_is_no_path_is_said_so(tmp_path, folder):
    with pytest.raises(UserError, match="no path"):
        save(Draft(title="Digits", data="digits", task="a:b"), tmp_path, folder)


def test_what_is_written_for_a_check_lies_where_its_task_is_looked_for(tmp_path):
    assert save_to_check(READY, tmp_path / "scratch").parent == tmp_path / "scratch"
    own = Draft(title="Digits", data="digits", task="a:b", folder=str(tmp_path))
    files = {save_to_check(own, tmp_path / "scratch") for _ in range(2)}
    assert {file.parent for file in files} == {tmp_path}
    assert len(files) == 2, "checks at the same time keep out of each other's way"


def started_by(command):
    program, *words = shlex.split(command)
    assert program == "crowdgrad"
    return parser().parse_args(words)


@pytest.mark.parametrize(
    ("reach", "host", "matchmaker"),
    [
        ("here", "127.0.0.1", None),
        ("network", None, None),
        ("matchmaker", None, "https://x.org/a b"),
    ],
)
def test_at_a_terminal_it_is_reached_as_widely_as_was_chosen(tmp_path, reach, host, matchmaker):
    job = tmp_path / "my $(job).toml"
    wish = SaveWish(draft=READY, helpers=3, reach=reach, matchmaker=matchmaker)
    args = started_by(at_terminal(USUAL, Path("runs"), job, wish))
    assert (args.job, args.helpers, args.host, args.matchmaker) == (str(job), 3, host, matchmaker)
    assert (args.home, args.runs, args.yes, args.plain) == (None, "runs", False, False)
    assert (args.page is not None) is (reach == "network"), "elsewhere the matchmaker has one"


def test_at_a_terminal_it_finds_keys_and_results_where_the_panel_has_them(tmp_path):
    runs, wish = tmp_path / "my runs", SaveWish(draft=READY)
    args = started_by(at_terminal(Settings(home=tmp_path), runs, tmp_path / "job.toml", wish))
    assert (args.home, args.runs, args.host) == (str(tmp_path), str(runs), "127.0.0.1")


def test_nobody_starts_helpers_without_end(tmp_path):
    with pytest.raises(JobFileError, match="65 helpers"):
        at_terminal(USUAL, Path("runs"), tmp_path, SaveWish(draft=READY, helpers=65))
