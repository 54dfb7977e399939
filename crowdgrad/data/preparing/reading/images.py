"""Folders of pictures: the folder a picture lies in is its class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from crowdgrad.data.preparing.columns import BadRows, Block, Coded, Dense, finished
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Known, Look, Part, Reader, SourceFile
from crowdgrad.data.preparing.pictures import decoded, looked_at, plan_pictures
from crowdgrad.data.preparing.schema import ColumnPlan, Schema
from crowdgrad.data.preparing.tokens import tokens_of
from crowdgrad.errors import DataMalformed

PICTURE, LABEL = "image", "class"
PART_PICTURES = 256
PART_PIXELS_BYTES = 8 << 20
LOOKED_AT = 256


def look(files: Sequence[SourceFile], options: Options) -> Look:
    """Some, spread over all: sorted by name, the first are of one class."""
    seen, step = [], max(1, len(files) // LOOKED_AT)
    for file in files[::step]:
        try:
            seen.append(looked_at(file.path))
        except ValueError:
            continue  # counted as broken when it is read
    if not seen:
        raise DataMalformed(
            f"none of {len(files[::step])} pictures can be opened, {files[0].name} for instance.",
            advice="We read PNG, JPEG, GIF, BMP, WebP, TIFF and PPM.",
        )
    picture = plan_pictures(seen, options.images)
    labels = sorted({file.label for file in files})
    columns = [ColumnPlan(PICTURE, "image", "input", picture.reason)]
    if labels != [""]:
        reason = f"the folders: {len(labels)} classes"
        columns.append(ColumnPlan(LABEL, "category", "target", reason))
    known = Known(tokens=tokens_of(options.text.tokens), picture=picture)
    return Look(sample={PICTURE: [], LABEL: labels}, known=known, schema=Schema(tuple(columns)))


def parts(files: Sequence[SourceFile], known: Known) -> Iterator[Part]:
    assert known.picture is not None
    pixels = int(np.prod(known.picture.shape))
    most = max(1, min(PART_PICTURES, PART_PIXELS_BYTES // pixels))
    number = 0
    for split in sorted({file.split or "" for file in files}):
        chosen = [file for file in files if (file.split or "") == split]
        for start in range(0, len(chosen), most):
            some = chosen[start : start + most]
            yield Part(
                number,
                some[0].path,
                some[0].name,
                start,
                start + len(some),
                split=some[0].split,
                files=tuple((file.path, file.name, file.label) for file in some),
            )
            number += 1


def read(part: Part, schema: Schema, known: Known) -> Block:
    assert known.picture is not None
    pixels = np.zeros((len(part.files), *known.picture.shape), np.uint8)
    labelled = any(plan.role == "target" for plan in schema.used)
    bad = BadRows("", len(part.files), [name for _, name, _ in part.files])
    for row, (path, _, label) in enumerate(part.files):
        if labelled and not label:
            bad.add("missing label", row, "it lies in no class's folder")
            continue
        try:
            pixels[row] = decoded(path, known.picture)
        except ValueError as error:
            bad.add("broken image", row, str(error))
    names = tuple(sorted({label for _, _, label in part.files}))
    codes = np.array([names.index(label) for _, _, label in part.files], np.int32)
    columns = {PICTURE: Dense(pixels)} | ({LABEL: Coded(codes, names)} if labelled else {})
    return finished(columns, len(part.files), bad, [0] * len(part.files))


READER = Reader(look=look, parts=parts, read=read)
