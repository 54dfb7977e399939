"""The kinds of ready-made models: what people choose from, and which file builds which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from crowdgrad.capture.ready.base import Model, Ready, Slider, Told, Value, model_from
from crowdgrad.capture.ready.reading import MOST_STEPS, Material, goal_of, materials, spell
from crowdgrad.domain.data import Field
from crowdgrad.errors import JobFileError, TaskError

if TYPE_CHECKING:
    from crowdgrad.capture.task import Task

DROPOUT = Slider(
    name="dropout",
    help="The share of values that training drops at random, against learning by heart.",
    default=0.0,
    least=0,
    most=0.8,
    step=0.05,
)


def _reads(fields: Sequence[Field], *wanted: Material) -> str:
    """Empty where the fields are one of these, with something to learn."""
    if goal_of(fields) is None or not materials(fields) & set(wanted):
        return f"The data is {spell(fields)}."
    return ""


def _fits_mlp(fields: Sequence[Field]) -> str:
    why = _reads(fields, "picture", "table", "text")
    if not why and goal_of(fields) == "next":
        why = f"The data is {spell(fields)}."
    return f"{why} This one reads pictures, tables and whole texts." if why else ""


def _fits_cnn(fields: Sequence[Field]) -> str:
    why = _reads(fields, "picture")
    return f"{why} This one reads pictures." if why else ""


def _fits_rnn(fields: Sequence[Field]) -> str:
    why = _reads(fields, "sequence", "text")
    if why:
        return f"{why} This one reads sequences and texts."
    steps = fields[0].shape[0]
    if steps > MOST_STEPS:
        return f"Records have {steps} steps; this one reads at most {MOST_STEPS}, one by one."
    return ""


def _fits_gpt(fields: Sequence[Field]) -> str:
    if "text" in materials(fields) and goal_of(fields) == "next" and len(fields) == 2:
        return ""
    return f"The data is {spell(fields)}. This one reads texts and learns which token comes next."


def _heads(values: Mapping[str, Value]) -> str:
    width, heads = int(values["width"]), int(values["heads"])
    if width % heads == 0:
        return ""
    return f"Make width a multiple of heads: {width - width % heads} or {width + -width % heads}."


KINDS: tuple[Ready, ...] = (
    Ready(
        kind="mlp",
        title="Layers of neurons",
        sentence="Fully connected layers: quick, for tables, small pictures, words in any order.",
        sliders=(
            Slider(name="layers", help="Hidden layers.", default=2, least=1, most=6),
            Slider(
                name="width", help="Neurons of a layer.", default=128, least=8, most=1024, step=8
            ),
            DROPOUT,
        ),
        fits=_fits_mlp,
    ),
    Ready(
        kind="cnn",
        title="Convolutions",
        sentence="Looks for the same small patterns everywhere in a picture, then for larger ones.",
        sliders=(
            Slider(
                name="blocks",
                help="Convolutions one after the other, each with half the picture's sides.",
                default=2,
                least=1,
                most=4,
            ),
            Slider(
                name="channels",
                help="Patterns the first block looks for; each further one for twice as many.",
                default=16,
                least=8,
                most=128,
                step=8,
            ),
            DROPOUT,
        ),
        fits=_fits_cnn,
    ),
    Ready(
        kind="rnn",
        title="A recurrent network",
        sentence="Reads step by step and remembers: for measurements over time and for texts.",
        sliders=(
            Slider(
                name="cell",
                help="How it remembers: lstm, or gru, which is smaller and quicker.",
                default="lstm",
                choices=("lstm", "gru"),
            ),
            Slider(name="layers", help="Networks one above the other.", default=1, least=1, most=3),
            Slider(
                name="width",
                help="Numbers it remembers in each layer.",
                default=64,
                least=8,
                most=512,
                step=8,
            ),
            DROPOUT,
        ),
        fits=_fits_rnn,
    ),
    Ready(
        kind="gpt",
        title="A small GPT",
        sentence="A transformer that learns which token comes next, as large language models do.",
        sliders=(
            Slider(name="layers", help="Blocks of attention.", default=2, least=1, most=8),
            Slider(
                name="heads",
                help="What each block pays attention to at once; width is a multiple of it.",
                default=4,
                least=1,
                most=8,
            ),
            Slider(
                name="width",
                help="Numbers a token becomes.",
                default=64,
                least=16,
                most=512,
                step=8,
            ),
            Slider(
                name="context",
                help="Tokens it looks back; 0: as many as a record of the data has.",
                default=0,
                least=0,
                most=1024,
                step=8,
            ),
            DROPOUT,
        ),
        fits=_fits_gpt,
        check=_heads,
    ),
)


def find(kind: object, where: str = "[model]") -> Ready:
    """Raises JobFileError."""
    for ready in KINDS:
        if ready.kind == kind:
            return ready
    names = ", ".join(ready.kind for ready in KINDS)
    what = f"{where} has no kind" if kind is None else f"'kind' of {where} is {kind!r}"
    raise JobFileError(f"{what}.", advice=f"Choose one of: {names}.")


def model_of(table: Mapping[str, object], where: str = "[model]") -> Model:
    """What a table asks for, every key checked. Raises JobFileError."""
    return model_from(find(table.get("kind"), where), table, where)


class _Module(Protocol):
    """What a kind's file has."""

    def task(self, model: Model, told: Told) -> Task: ...


def build(model: Model, told: Told, seed: int) -> Task:
    """The model for this data; its first weights depend on the seed alone.

    Loads torch. Raises TaskError where it does not fit.
    """
    import importlib

    ready = find(model.kind)
    why = ready.fits(told.fields)
    if why:
        others = [other.kind for other in KINDS if not other.fits(told.fields)]
        instead = f"Choose {' or '.join(others)}." if others else "Write a task: docs/models.md."
        raise TaskError(f"{model.kind} does not fit. {why}", advice=instead)
    from crowdgrad.capture.ready.parts import seeded

    module = cast(_Module, importlib.import_module(f"crowdgrad.capture.ready.{model.kind}"))
    with seeded(seed):
        return module.task(model, told)
