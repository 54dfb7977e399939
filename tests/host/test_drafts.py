"""Drafts of jobs: each mistake named, and the file says what the draft says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import DataMissing, JobFileError, UserError
from crowdgrad.host import jobfile
from crowdgrad.host.drafts import Draft, check, of_table, of_toml, plan_of, save, to_toml

DRAFT = Draft(
    data="digits",
    title="Small digits",
    model={"kind": "mlp", "width": 16},
    recipe={"name": "crowd", "lr": 0.1, "rule": {"name": "adam", "beta1": 0.5}},
    stop={"epochs": 3, "minutes": 1.5},
    volunteers={"minimum": 1, "maximum": 8, "visibility": "link"},
    seed=7,
)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
VALUES = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), TEXTS
)
TABLES = st.dictionaries(TEXTS, st.one_of(VALUES, st.dictionaries(TEXTS, VALUES, max_size=2)))
DRAFTS = st.builds(
    Draft,
    data=TEXTS,
    title=TEXTS,
    cause=TEXTS,
    description=TEXTS,
    contact=TEXTS,
    model=st.none() | TABLES,
    task=st.none() | TEXTS.filter(bool),
    folder=TEXTS,
    recipe=TABLES,
    stop=TABLES,
    volunteers=TABLES,
    seed=st.integers(0, (1 << 63) - 1),
)


@given(DRAFTS)
def test_the_file_says_what_the_draft_says(draft):
    assert of_toml(to_toml(draft), draft.folder) == draft


def test_half_a_character_is_refused():
    with pytest.raises(JobFileError, match=r"U\+D800"):
        to_toml(replace(DRAFT, title="\ud800"))


def test_a_sound_draft_passes_and_becomes_the_job_of_its_file(tmp_path: Path):
    check(DRAFT)
    file = save(DRAFT, tmp_path)
    made, read = plan_of(DRAFT, cache=tmp_path), jobfile.read(file, cache=tmp_path)
    for name in ("title", "recipe", "stop", "seed", "minimum", "maximum", "visibility"):
        assert getattr(made, name) == getattr(read, name), name
    ours, theirs = made.task.model.state_dict(), read.task.model.state_dict()
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_data_is_found_from_where_the_file_is_saved(tmp_path: Path):
    work, there = tmp_path / "work", tmp_path / "there"
    work.mkdir()
    there.mkdir()
    np.savez(work / "mine.npz", x=np.zeros((20, 3), np.float32), y=np.arange(20) % 2)
    draft = replace(DRAFT, data="mine.npz", folder=str(work))
    assert jobfile.read(save(draft, there), cache=tmp_path).data.records("train") == 20
    with pytest.raises(DataMissing, match="yours"):
        save(replace(draft, data="yours.npz"), there)
    with pytest.raises(JobFileError, match="beside the job file"):
        save(replace(draft, model=None, task="model:task"), there)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"data": " "}, "no data"),
        ({"title": ""}, "title is ''"),
        ({"title": "a\nb"}, "title is"),
        ({"title": "x" * 121}, "title is"),
        ({"model": None}, "no model yet"),
        ({"task": "model:task"}, "a model and a task"),
        ({"model": {"kind": "mlp", "width": 5000}}, "'width'"),
        ({"model": None, "task": "model.py"}, "module:object"),
        ({"recipe": {"name": "magic"}}, "no recipe 'magic'"),
        ({"recipe": {"lr": "fast"}}, "lr of"),
        ({"stop": {"epochs": 0}}, "0 epochs"),
        ({"stop": {"epochs": "5"}}, "epochs"),
        ({"stop": {"days": 1}}, "'days'"),
        ({"volunteers": {"minimum": 9, "maximum": 8}}, "minimum 9"),
        ({"volunteers": {"maximum": 0}}, "maximum 0"),
        ({"volunteers": {"invited": []}}, "'invited'"),
        ({"volunteers": {"visibility": "group"}}, "'group'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_every_mistake_is_named(change, what):
    with pytest.raises(UserError, match=what) as refused:
        check(replace(DRAFT, **change))
    assert refused.value.advice


@pytest.mark.parametrize(
    "table", [{"colour": 1}, {"title": 5}, {"recipe": "crowd"}, {"model": "mlp"}, {"seed": "1"}]
)
def test_what_has_not_the_form_of_a_draft_is_refused(table):
    with pytest.raises(JobFileError) as refused:
        of_table(table)
    assert refused.value.advice
