"""Charts as inline SVG: no library, no script, sharp at any size, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    name: str
    css: str
    """The class that colours it."""
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The part of the plane that is drawn."""

    x_end: float
    y_low: float
    y_high: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = x / self.x_end
        up = (y - self.y_low) / (self.y_high - self.y_low)
        bottom = HEIGHT - BOTTOM
        return LEFT + across * (WIDTH - LEFT - RIGHT), bottom - up * (bottom - TOP)


def line_chart(
    lines: Sequence[Line], *, x_label: str, y_label: str, marks: Sequence[float] = ()
) -> str:
    """`marks`: places on the horizontal axis where something happened."""
    drawn = [Line(name=li.name, css=li.css, points=_finite(li.points)) for li in lines]
    drawn = [line for line in drawn if line.points]
    if not drawn:
        return '<p class="empty">Nothing was measured: the run ended too early.</p>'
    ys = [y for line in drawn for _, y in _settled(line.points)]
    y_ticks = ticks(min(ys), max(ys))
    x_end = max(x for line in drawn for x, _ in line.points) or 1.0
    frame = _Frame(x_end, y_ticks[0], y_ticks[-1])
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_label)}">',
        f'<clipPath id="area"><rect x="{LEFT}" y="{TOP - 4}" width="{WIDTH - LEFT}" '
        f'height="{HEIGHT - TOP - BOTTOM + 8}"/></clipPath>',
        *_axes(frame, y_ticks, [x for x in ticks(0.0, x_end) if x <= x_end], x_label),
        *(_mark(frame, at) for at in marks if 0 <= at <= x_end),
        *(_curve(frame, line) for line in drawn),
        "</svg>",
    ]
    if len(drawn) > 1:
        keys = (f'<span><i class="{li.css}"></i>{escape(li.name)}</span>' for li in drawn)
        parts.append(f'<p class="key">{"".join(keys)}</p>')
    return "".join(parts)


def bar_chart(bars: Sequence[tuple[str, float]], *, x_label: str, y_label: str) -> str:
    """Named bars, each with its number on top."""
    if not any(value for _, value in bars):
        return '<p class="empty">Nothing was measured: the run ended too early.</p>'
    y_ticks = ticks(0.0, max(value for _, value in bars))
    frame = _Frame(float(len(bars)), 0.0, y_ticks[-1])
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_label)}">',
        *_axes(frame, y_ticks, (), x_label),
    ]
    for place, (name, value) in enumerate(bars):
        left, top = frame.at(place + 0.15, value)
        right, bottom = frame.at(place + 0.85, 0.0)
        middle = (left + right) / 2
        parts += [
            f'<rect class="a" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{bottom - top:.1f}" rx="2"><title>{escape(name)}: {value:,.0f}</title>'
            "</rect>",
            f'<text x="{middle:.1f}" y="{HEIGHT - 18}" text-anchor="middle">{escape(name)}</text>',
        ]
    return "".join([*parts, "</svg>"])


def _mark(frame: _Frame, at: float) -> str:
    x, _ = frame.at(at, frame.y_low)
    ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
    return f'<line class="mark" {ends}><title>went on from a checkpoint</title></line>'


def _axes(
    frame: _Frame, y_ticks: Sequence[float], x_ticks: Sequence[float], x_label: str
) -> list[str]:
    parts = []
    for tick in y_ticks:
        _, y = frame.at(0, tick)
        ends = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line class="grid" {ends}/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in x_ticks:
        x, _ = frame.at(tick, frame.y_low)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{tick:g}</text>')
    where = f'x="{WIDTH - RIGHT}" y="{HEIGHT - 1}" text-anchor="end"'
    parts.append(f"<text {where}>{escape(x_label)}</text>")
    return parts


def _curve(frame: _Frame, line: Line) -> str:
    path = " ".join("{:.1f},{:.1f}".format(*frame.at(x, y)) for x, y in line.points)
    x, y = frame.at(*line.points[-1])
    return (
        f'<g clip-path="url(#area)"><polyline class="{line.css}" points="{path}">'
        f"<title>{escape(line.name)}</title></polyline>"
        f'<circle class="{line.css}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/></g>'
    )


def _settled(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """What the vertical axis should show: not the first moments, whose height hides the rest."""
    end = points[-1][0]
    return [p for p in points if p[0] >= 0.04 * end] or points


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers that span low to high: steps of 1, 2 or 5 times a power of ten."""
    least = max(abs(low), abs(high)) * 1e-6 or 1.0  # a flat line still has a scale
    high = max(high, low + max(least, 1e-12))
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
