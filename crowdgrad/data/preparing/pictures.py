"""A picture becomes bytes of one size, once: decoded, turned upright, resized, channels first."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from PIL import Image, ImageOps

from crowdgrad.data.preparing.columns import Array
from crowdgrad.data.preparing.options import Colour, Fit, ImageWish

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
MAX_PIXELS = 1 << 28
USUAL_SIDE = 64
"""Of pictures that differ in size, unless told."""
GREY = ("1", "L", "LA", "I;16", "I", "F")
ORIENTATION, ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)
FAULTS = (
    OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, AttributeError, MemoryError,
    ArithmeticError, struct.error, zlib.error, RuntimeError, Image.DecompressionBombError,
)  # fmt: skip
"""What Pillow raises for files that are not what they say."""
_RESAMPLE = Image.Resampling.BILINEAR


class PicturePlan(msgspec.Struct, frozen=True):
    height: int
    width: int
    colour: Colour
    fit: Fit
    reason: str = ""

    @property
    def shape(self) -> tuple[int, int, int]:
        return (3 if self.colour == "rgb" else 1, self.height, self.width)


def plan_pictures(seen: list[tuple[int, int, bool]], wish: ImageWish) -> PicturePlan:
    """`seen`: height, width and whether it is grey, of some pictures."""
    sizes = {(height, width) for height, width, _ in seen}
    if wish.size is not None:
        (height, width), reason = wish.size, "as you say"
    elif len(sizes) == 1:
        ((height, width),) = sizes
        reason = "the size of all looked at"
    else:
        height = width = min(USUAL_SIDE, *(side for size in sizes for side in size))
        reason = "they differ in size: choose one with --size"
    grey = bool(seen) and all(grey for _, _, grey in seen)
    return PicturePlan(height, width, wish.colour or ("grey" if grey else "rgb"), wish.fit, reason)


def opened(source: Any) -> Image.Image:
    """From a path, bytes, Hugging Face's {"bytes", "path"}, or a picture of Pillow's.

    Raises ValueError with what is wrong.
    """
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, Mapping):
        source = source["bytes"] if source.get("bytes") is not None else source.get("path")
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    if not isinstance(source, str | os.PathLike | io.BytesIO):
        raise ValueError("there is no picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(source, formats=FORMATS)
    except (*FAULTS, Image.DecompressionBombWarning) as error:
        raise ValueError(_words(error)) from None
    if picture.width * picture.height > MAX_PIXELS:
        raise ValueError(f"{picture.width}×{picture.height} pixels are too many")
    return picture


def looked_at(source: Any) -> tuple[int, int, bool]:
    """Height, width, and whether it is grey, from the beginning of the file. Raises ValueError."""
    picture = opened(source)
    try:
        height, width = picture.height, picture.width
        if _orientation(picture) in ON_ITS_SIDE:
            height, width = width, height
        return height, width, picture.mode in GREY
    finally:
        if picture is not source:  # what is somebody's own stays open
            picture.close()


def _orientation(picture: Image.Image) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return picture.getexif().get(ORIENTATION)
    except FAULTS as error:
        raise ValueError(_words(error)) from None


def decoded(source: Any, plan: PicturePlan) -> Array:
    """(channels, height, width) of bytes. Raises ValueError with what is wrong."""
    picture = opened(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a file's small faults are its owner's
            upright = ImageOps.exif_transpose(picture)
            upright = _eight_bits(upright).convert("RGB" if plan.colour == "rgb" else "L")
    except FAULTS as error:
        raise ValueError(_words(error)) from None
    finally:
        if picture is not source:
            picture.close()
    pixels = np.asarray(_fitted(upright, plan), np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Pillow cuts deeper greys off where it should scale them."""
    if not picture.mode.startswith(("I", "F")):
        return picture
    values = np.asarray(picture, np.float64)
    top = 65535.0 if picture.mode.startswith("I") else float(values.max() or 1)
    return Image.fromarray(np.clip(values / top * 255, 0, 255).astype(np.uint8))


def _fitted(picture: Image.Image, plan: PicturePlan) -> Image.Image:
    size = (plan.width, plan.height)
    if picture.size == size:
        return picture
    if plan.fit == "stretch":
        return picture.resize(size, _RESAMPLE)
    if plan.fit == "pad":
        return ImageOps.pad(picture, size, _RESAMPLE)
    return ImageOps.fit(picture, size, _RESAMPLE)


def _words(error: BaseException) -> str:
    text = str(error).split("<")[0].strip() or type(error).__name__
    return text.rstrip(".")
