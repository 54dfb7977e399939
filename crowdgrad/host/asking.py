"""The model as it is now, asked: what it makes of some test records, and of what people draw.

The parameters are copied, at most once a second, and the forward program runs in a thread, one at a
time, on one core: training goes on beside it. Records lie in the data as they are stored and the
program normalises them; pictures are told and taken as brightness, 0 to 1.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from crowdgrad.data.preview import (
    LARGEST_SIDE,
    brightness,
    cell,
    is_picture,
    several,
    shown_shape,
    shown_step,
    white_of,
)
from crowdgrad.data.shards import shard_arrays
from crowdgrad.domain.data import Field, Manifest
from crowdgrad.domain.work import Version
from crowdgrad.errors import DataMalformed, DataMissing
from crowdgrad.host import next_token
from crowdgrad.host.job import Prepared
from crowdgrad.numerics.vectors import Vector

if TYPE_CHECKING:
    from crowdgrad.program.engines.onnx import OnnxEngine

Kind = Literal["image", "numbers", "text", "other"]
Columns = tuple[NDArray[Any], ...]
FRESH_S = 1.0
"""How long the same parameters are asked."""
MOST_SAMPLES = 100
MOST_NUMBERS = 1 << 18
"""In one record that is asked about."""
MOST_TOLD = 3 * LARGEST_SIDE**2
"""Numbers of one record that is told: as many as a picture in colours has at most."""
SHOWN_ANSWERS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A record the model has never trained on, and what it makes of it."""

    index: int
    """Within its split."""
    input: list[float] | str
    """Brightness 0 to 1, row by row (image); the numbers as stored, if they are few; or words: of a
    text that the model continues, its end."""
    label: str | None
    """What is right; of a text that the model continues, the token behind it."""
    predicted: str | None
    probability: float | None
    right: bool | None
    """None where there is no class to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    kind: Kind
    shape: list[int]
    """Of an input as it is told; a picture's is height and width, and 3 where it has colours."""
    input_shape: list[int]
    """The same of an input as the model takes it: a large picture is told in fewer pixels."""
    classes: list[str] | None
    version: str
    """Of the parameters that were asked."""
    split: Literal["test", "validation"]
    samples: list[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    label: str
    probability: float | None
    """None where the model tells no classes apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    version: str
    answers: list[Choice]
    """The best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What was told last."""

    count: int
    samples: Samples
    json: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What does not change while a run goes on."""

    manifest: Manifest
    engine: OnnxEngine
    split: Literal["test", "validation"]
    columns: Columns
    """The first records of the split."""
    scale: float
    """The brightest a picture's stored numbers get."""


class Asking:
    def __init__(
        self,
        prepared: Prepared,
        copy: Callable[[], Awaitable[tuple[Vector, Version]]],
        clock: Callable[[], float],
    ) -> None:
        """`copy`: the parameters now, for us alone; raises PeerError where they are away."""
        self._prepared = prepared
        self._copy = copy
        self._clock = clock
        self._one = asyncio.Lock()
        self._known: _Known | None = None
        self._state: tuple[Vector, Version] | None = None
        self._copied_at = -math.inf
        self._shown: _Shown | None = None
        """Of the parameters we have."""

    async def samples(self, count: int) -> Samples:
        """Raises DataError, ProgramError, PeerError."""
        return (await self._show(count)).samples

    async def samples_as_json(self, count: int) -> bytes:
        """The same in words, made in the thread, once for all who ask; numbers that are not finite
        become null."""
        return (await self._show(count)).json

    async def predict(self, numbers: Sequence[float]) -> Prediction:
        """Raises DataMalformed where they are no input of the model, and as `samples` does."""
        async with self._one:
            state, version = await self._now()
            return await asyncio.to_thread(self._answer, numbers, state, version)

    async def _show(self, count: int) -> _Shown:
        count = min(max(1, count), MOST_SAMPLES)
        async with self._one:
            state, version = await self._now()
            if self._shown is None or self._shown.count != count:
                self._shown = await asyncio.to_thread(self._look, count, state, version)
            return self._shown

    async def _now(self) -> tuple[Vector, Version]:
        if self._state is None or self._clock() - self._copied_at >= FRESH_S:
            before = self._state[1] if self._state is not None else None
            self._state = None  # two of them need not lie in memory
            state, version = await self._copy()
            if version != before:
                self._shown = None
            self._state, self._copied_at = (state, version), self._clock()
        return self._state

    # -- in the thread --------------------------------------------------------------------------

    def _look(self, count: int, state: Vector, version: Version) -> _Shown:
        known = self._ready()
        columns = tuple(column[:count] for column in known.columns)
        outputs = self._run(known, columns, state)
        fields = known.manifest.fields
        kind = _kind(fields, self._inputs, known.manifest)
        told = [self._sample(known, kind, row, columns, outputs) for row in range(len(columns[0]))]
        samples = Samples(
            kind=kind,
            shape=list(shown_shape(fields[0].shape)) if kind == "image" else list(fields[0].shape),
            input_shape=_shape(fields[0], kind),
            classes=self._classes(known.manifest),
            version=str(version),
            split=known.split,
            samples=told,
        )
        return _Shown(count=count, samples=samples, json=_as_json(samples))

    def _answer(self, numbers: Sequence[float], state: Vector, version: Version) -> Prediction:
        known = self._ready()
        columns = self._record(known, numbers)
        outputs = self._run(known, columns, state)[0][0]
        if self._continues(known, outputs):
            end = next_token.last_of(columns[0][0], known.manifest.card.vocabulary)
            tokens = self._tokens(known, outputs[end])
            return Prediction(version=str(version), answers=tokens)
        shares = self._shares(outputs)
        if shares is None:
            flat = outputs.reshape(-1)[:SHOWN_ANSWERS]
            answers = [Choice(label=f"{value:.6g}", probability=None) for value in flat.tolist()]
            return Prediction(version=str(version), answers=answers)
        names = self._classes(known.manifest) or []
        best = np.argsort(-shares, kind="stable")[:SHOWN_ANSWERS]
        return Prediction(
            version=str(version),
            answers=[Choice(label=names[k], probability=float(shares[k])) for k in best.tolist()],
        )

    def _ready(self) -> _Known:
        if self._known is None:
            from crowdgrad.program.engines.onnx import OnnxEngine  # loads onnxruntime

            manifest = self._prepared.manifest
            split: Literal["test", "validation"] = (
                "test" if manifest.records("test") else "validation"
            )
            columns = self._first(manifest, split)
            white = white_of(columns[0]) if is_picture(manifest.fields[0]) else 255.0
            self._known = _Known(
                manifest=manifest,
                engine=OnnxEngine(self._prepared.program, threads=1),
                split=split,
                columns=columns,
                scale=white,
            )
        return self._known

    def _first(self, manifest: Manifest, split: Literal["test", "validation"]) -> Columns:
        found: list[Columns] = []
        for number in manifest.numbers(split):
            chunks = manifest.shards[number].chunks
            data = b"".join(self._prepared.blobs[chunk.hash] for chunk in chunks)
            arrays = shard_arrays(manifest, number, data)
            found.append(tuple(array[:MOST_SAMPLES].copy() for array in arrays))
            if sum(len(columns[0]) for columns in found) >= MOST_SAMPLES:
                break
        if not found:
            raise DataMissing(
                "There are no records that were kept out of training.",
                advice="Train on data with a test or a validation split to look at some.",
            )
        return tuple(np.concatenate(parts)[:MOST_SAMPLES] for parts in zip(*found, strict=True))

    def _run(self, known: _Known, columns: Columns, state: Vector) -> Columns:
        """What the model returns for these records, a row each."""
        from crowdgrad.program.engines.base import Batch

        spec, records = self._prepared.program.spec, len(columns[0])
        size = spec.fixed_batch or records
        parts: list[Columns] = []
        for first in range(0, records, size):
            rows = np.minimum(np.arange(first, first + size), records - 1)  # the rest is filled up
            fields = [np.ascontiguousarray(column[rows]) for column in columns]
            if spec.weighted and len(fields) < len(spec.inputs):
                fields.append(np.ones((size, *spec.inputs[-1].shape), np.float32))
            parts.append(known.engine.predict(Batch(number=0, fields=tuple(fields)), state))
        whole = tuple(np.concatenate(column)[:records] for column in zip(*parts, strict=True))
        if not whole or any(len(output) < records for output in whole[:1]):
            raise DataMalformed(
                "The model does not return one row for each record.",
                advice="Let its forward return a tensor whose first axis is the batch.",
            )
        return whole

    # -- in words -------------------------------------------------------------------------------

    @property
    def _inputs(self) -> int:
        """How many fields the model reads; behind them is what the loss compares with."""
        return max(1, self._prepared.label)

    def _continues(self, known: _Known, output: NDArray[Any]) -> bool:
        """Whether it answers with a score for each token behind each of a text."""
        fields, words = known.manifest.fields, known.manifest.card.vocabulary
        length = fields[0].shape[:1]
        scores = output.ndim == 2 and output.shape[:1] == length and output.shape[1] >= len(words)
        return scores and next_token.continues(fields, self._prepared.label, words)

    def _tokens(self, known: _Known, scores: NDArray[Any]) -> list[Choice]:
        shares, words = _as_shares(scores), known.manifest.card.vocabulary
        best = np.argsort(-shares, kind="stable")[:SHOWN_ANSWERS].tolist()
        return [
            Choice(label=next_token.spelled(k, words), probability=float(shares[k])) for k in best
        ]

    def _continued(
        self, known: _Known, row: int, read: NDArray[Any], wanted: NDArray[Any], output: Any
    ) -> Sample:
        words = known.manifest.card.vocabulary
        place = next_token.last_of(wanted, words)
        best = self._tokens(known, output[place])[0]
        label = next_token.spelled(int(wanted[place]), words)
        return Sample(
            index=row,
            input=next_token.ending(read[: place + 1], words),
            label=label,
            predicted=best.label,
            probability=best.probability,
            right=label == best.label,
        )

    def _classes(self, manifest: Manifest) -> list[str] | None:
        count, names = self._prepared.classes, manifest.card.classes
        if count is None:
            return None
        return list(names) if len(names) == count else [str(k) for k in range(count)]

    def _sample(
        self, known: _Known, kind: Kind, row: int, columns: Columns, outputs: Columns
    ) -> Sample:
        fields, card = known.manifest.fields, known.manifest.card
        place, names = self._prepared.label, self._classes(known.manifest)
        if self._continues(known, outputs[0][row]):
            return self._continued(
                known, row, columns[0][row], columns[place][row], outputs[0][row]
            )
        target = columns[place][row] if 0 < place < len(columns) else None
        label = None
        if target is not None and names is not None and target.ndim == 0:
            known_class = 0 <= int(target) < len(names)  # the loss passes over others, such as -100
            label = names[int(target)] if known_class else None
        elif target is not None:
            label = cell(fields[place], target, card, target=True)
        predicted, probability = self._predicted(outputs[0][row], names)
        compares = names is not None and label is not None
        return Sample(
            index=row,
            input=_input(known, kind, [column[row] for column in columns[: self._inputs]]),
            label=label,
            predicted=predicted,
            probability=probability,
            right=label == predicted if compares else None,
        )

    def _predicted(self, output: NDArray[Any], names: list[str] | None) -> tuple[str, float | None]:
        shares = self._shares(output)
        if shares is not None and names is not None:
            best = int(shares.argmax())
            return names[best], float(shares[best])
        if output.size == 1:
            return f"{float(output.reshape(-1)[0]):.6g}", None
        return several(output), None

    def _shares(self, output: NDArray[Any]) -> NDArray[np.float64] | None:
        """How sure it is of each class; None where its answer is something else."""
        if self._prepared.classes is None or output.shape != (self._prepared.classes,):
            return None
        return _as_shares(output)

    def _record(self, known: _Known, numbers: Sequence[float]) -> Columns:
        """One record as it would be stored; what the loss compares with is zero."""
        fields = known.manifest.fields
        field, kind = fields[0], _kind(fields, self._inputs, known.manifest)
        if self._inputs > 1:
            raise DataMalformed(
                f"The model reads {self._inputs} fields: it cannot be asked here.",
                advice="`crowdgrad predict` asks the finished run, with a file of records.",
            )
        _check(field, kind, numbers)
        values = np.asarray(numbers, np.float64)
        if kind == "image":
            picture = _whole(values.clip(0.0, 1.0), field)
            values = _stored(picture, field) * known.scale
        record = np.zeros((1, *field.shape), field.dtype)
        if np.issubdtype(record.dtype, np.integer):
            info = np.iinfo(record.dtype)
            values = values.round().clip(info.min, info.max)
        record[0] = values.reshape(field.shape).astype(record.dtype)
        return record, *(np.zeros((1, *other.shape), other.dtype) for other in fields[1:])


def _as_shares(scores: NDArray[Any]) -> NDArray[np.float64]:
    """They may be shares already. Raises DataMalformed."""
    numbers = scores.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise DataMalformed(
            "The model's answer is not finite.", advice="Try a smaller learning rate."
        )
    if (numbers >= 0).all() and math.isclose(numbers.sum(), 1.0, abs_tol=1e-3):
        return numbers
    powers: NDArray[np.float64] = np.exp(numbers - numbers.max())
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


def _as_json(told: Samples) -> bytes:
    """Sample by sample: to encode one keeps all other threads waiting, the loop's too."""
    each = [msgspec.Raw(msgspec.json.encode(sample)) for sample in told.samples]
    return msgspec.json.encode({**asdict(replace(told, samples=[])), "samples": each})


def _kind(fields: Sequence[Field], inputs: int, manifest: Manifest) -> Kind:
    field = fields[0]
    if math.prod(field.shape) > MOST_NUMBERS:
        return "other"
    if is_picture(field) and inputs == 1:
        return "image"
    whole = field.dtype not in ("float32", "float64", "bool")
    if len(field.shape) == 1 and whole and manifest.card.vocabulary and field.mean is None:
        return "text"
    return "numbers" if inputs == 1 and len(field.shape) <= 1 else "other"


def _shape(field: Field, kind: Kind) -> list[int]:
    """As told: a picture's colours come last, and one channel is none."""
    if kind != "image" or len(field.shape) == 2:
        return list(field.shape)
    channels, *sides = field.shape
    return [*sides, channels] if channels > 1 else sides


def _check(field: Field, kind: Kind, numbers: Sequence[float]) -> None:
    """Raises DataMalformed where they are neither an input, nor a picture as it is told."""
    wanted = math.prod(field.shape)
    told = math.prod(shown_shape(field.shape)) if kind == "image" else wanted
    if len(numbers) not in (wanted, told) or not all(map(math.isfinite, numbers)):
        raise DataMalformed(
            f"An input is {wanted} finite numbers, not {len(numbers)}.",
            advice=f"Give as many as {'×'.join(map(str, _shape(field, kind)))} has.",
        )


def _whole(values: NDArray[Any], field: Field) -> NDArray[Any]:
    """As many pixels as the model takes: a picture may come back as it was told."""
    whole = _shape(field, "image")
    if values.size == math.prod(whole):
        return values.reshape(whole)
    step = shown_step(field.shape)
    larger = values.reshape(shown_shape(field.shape)).repeat(step, 0).repeat(step, 1)
    return larger[: whole[0], : whole[1]]


def _stored(picture: NDArray[Any], field: Field) -> NDArray[Any]:
    """Channels first, as the data has them."""
    return np.moveaxis(picture, -1, 0) if picture.ndim == 3 else picture.reshape(field.shape)


def _input(known: _Known, kind: Kind, values: Sequence[NDArray[Any]]) -> list[float] | str:
    """Of all that the model reads; of texts, what stands in them."""
    fields, card, value = known.manifest.fields, known.manifest.card, values[0]
    if kind == "image":
        return brightness(value, known.scale)
    if kind == "numbers" and value.size <= MOST_TOLD:
        told: list[float] = np.asarray(value, np.float64).reshape(-1).tolist()
        return told
    if kind == "text" or len(values) == 1:
        return cell(fields[0], value, card, target=False)
    named = zip(fields, values, strict=False)
    return "; ".join(f"{f.name} {cell(f, one, card, target=False)}" for f, one in named)
