"""The report's part on how the data spread: who held what, who sent to whom; SVG, no scripts.

Left a row for each member with the data from its beginning to its end, filled where it held it.
Right a ring with the host on top and an arrow for each flow, the wider the more was sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from crowdgrad.host.telling.swarm_status import SwarmFlow, SwarmMember, SwarmStatus
from crowdgrad.planner.replication.plans import HOST

DRAWN = 40
"""Members in the pictures."""
NAMED_AROUND = 16
"""Of so few the names stand around the ring, of more their numbers alone."""
WIDTH = 440
NAME_WIDTH, PERCENT_WIDTH = 122, 46
NAME_CHARACTERS, AROUND_CHARACTERS = 16, 13
SHARES = {
    "needed": "Everybody gets what its units need.",
    "segments": "Everybody gets its own segments.",
    "full": "Everybody gets everything.",
}
STYLE = """
.swarm h3{font-size:13px;font-weight:600;color:var(--dim);margin:0 0 8px}
.swarm .two{margin:4px 0 18px;gap:22px}
.swarm .none{fill:var(--edge)}.swarm .held{fill:var(--a)}
.swarm svg .who{fill:var(--ink)}.swarm svg .gone{fill:var(--dim)}
.swarm .flow{fill:none;stroke:var(--a);stroke-linecap:round}.swarm .flow.host{stroke:var(--b)}
.swarm marker path{fill:var(--a)}.swarm marker.host path{fill:var(--b)}
.swarm .node{fill:var(--a);stroke:var(--card);stroke-width:2}.swarm .node.host{fill:var(--b)}
.swarm .node.left{fill:var(--dim)}
.swarm td.l{min-width:14em}.swarm svg .number{fill:var(--card);font-weight:600;text-anchor:middle}
"""


def section(swarm: SwarmStatus) -> str:
    drawn = _drawn(swarm.members)
    pictures = (
        f"<div><h3>Who held what when it was over</h3>{_matrix(drawn)}</div>"
        f"<div><h3>Who sent to whom</h3>{_ring(drawn, swarm.flows)}"
        '<p class="key"><span><i class="b"></i>from the host</span>'
        '<span><i class="a"></i>from member to member</span></p></div>'
    )
    pictures = f'<div class="two">{pictures}</div>' if drawn else ""
    return (
        f'<section class="swarm"><h2>How the data spread</h2>{_words(swarm, len(drawn))}'
        f"{pictures}{_table(swarm)}</section>\n"
    )


def _drawn(members: Sequence[SwarmMember]) -> list[SwarmMember]:
    """Who is here before who has gone, and who exchanged most of them, in roster order."""
    busiest = sorted(
        members, key=lambda m: (m.here, m.received_bytes + m.passed_on_bytes), reverse=True
    )
    return sorted(busiest[:DRAWN], key=lambda m: m.position)


def _words(swarm: SwarmStatus, drawn: int) -> str:
    everybody = len(swarm.members) + swarm.others.members
    told = [
        f"Plan {swarm.plan}: {swarm.sentence}. {SHARES[swarm.share]}",
        f"{swarm.complete} of {swarm.here} members had all they wanted.",
        f"The host sent {amount(swarm.host_sent_bytes)}: {swarm.host_copies:.2f} copies of the "
        f"{amount(swarm.wanted_bytes)} that members wanted.",
    ]
    if drawn < everybody:
        told.append(f"Drawn are the {drawn} of {everybody} members that exchanged most.")
    return f'<p class="note">{escape(" ".join(told))}</p>'


# -- who holds what -----------------------------------------------------------------------------


def _matrix(members: Sequence[SwarmMember]) -> str:
    height = 24 if len(members) <= 12 else 17
    rows = "".join(_row(member, n * height, height) for n, member in enumerate(members))
    return (
        f'<svg viewBox="0 0 {WIDTH} {len(members) * height}" role="img" '
        f'aria-label="Who held what">{rows}</svg>'
    )


def _row(member: SwarmMember, top: int, height: int) -> str:
    width, bar = WIDTH - NAME_WIDTH - PERCENT_WIDTH, height - 7
    middle = top + height / 2 + 4
    percent = f"{math.floor(100 * member.progress)} %" if member.here else "gone"
    parts = [
        f'<text class="{"who" if member.here else "gone"}" x="0" y="{middle:g}">'
        f"{escape(_label(member, NAME_CHARACTERS))}</text>",
        f'<rect class="none" x="{NAME_WIDTH}" y="{top + 3.5}" width="{width}" height="{bar}" '
        f'rx="2"><title>{escape(_held(member))}</title></rect>',
        *_cells(member.map, top + 3.5, width, bar),
        f'<text x="{WIDTH}" y="{middle:g}" text-anchor="end">{percent}</text>',
    ]
    return "".join(parts)


def _cells(cells: Sequence[float], top: float, width: int, height: int) -> list[str]:
    """One rectangle for neighbours that are alike: most rows are a few."""
    drawn, at = [], 0
    for value, alike in groupby(cells):
        count = len(list(alike))
        left, wide = NAME_WIDTH + width * at / len(cells), width * count / len(cells)
        at += count
        if value > 0:
            drawn.append(
                f'<rect class="held" x="{left:.1f}" y="{top}" width="{wide:.1f}" '
                f'height="{height}" rx="1" opacity="{0.2 + 0.8 * value:.2f}"/>'
            )
    return drawn


def _held(member: SwarmMember) -> str:
    if not member.here:
        return f"{member.name} had gone"
    return f"{member.name}: {member.held_chunks:,} chunks, {member.wanted_chunks:,} wanted"


def _label(member: SwarmMember, characters: int) -> str:
    label = f"{member.position}. {member.name}"
    return label if len(label) <= characters else f"{label[: characters - 1]}…"


# -- who sends to whom --------------------------------------------------------------------------


def _ring(members: Sequence[SwarmMember], flows: Sequence[SwarmFlow]) -> str:
    few = len(members) <= NAMED_AROUND
    radius, dot = (122, 11.0) if few else (182, 10.5)
    height = 2 * radius + 56
    middle = (WIDTH / 2, height / 2)
    places = {
        node: _around(middle, radius, n / (len(members) + 1))
        for n, node in enumerate([HOST, *(member.position for member in members)])
    }
    names = {HOST: "host", **{member.position: member.name for member in members}}
    nodes = [_node(member, places[member.position], dot, middle, few) for member in members]
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Who sent to whom">'
        f"<defs>{_head('to-member', '')}{_head('to-host', ' class=host')}</defs>"
        f"{''.join(_flows(flows, places, names, middle, dot))}{''.join(nodes)}"
        f"{_host(places[HOST], dot + 3)}</svg>"
    )


def _head(name: str, css: str) -> str:
    return (
        f'<marker id="{name}"{css} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0.6 8 4 0 7.4Z"/></marker>'
    )


def _around(middle: tuple[float, float], radius: float, turn: float) -> tuple[float, float]:
    """A place on the ring, clockwise from its top."""
    angle = 2 * math.pi * turn
    return middle[0] + radius * math.sin(angle), middle[1] - radius * math.cos(angle)


def _flows(
    flows: Sequence[SwarmFlow],
    places: Mapping[int, tuple[float, float]],
    names: Mapping[int, str],
    middle: tuple[float, float],
    dot: float,
) -> list[str]:
    """The busiest last, and the host's after them, so that they lie on top."""
    drawn = [f for f in flows if f.sender in places and f.receiver in places and f.bytes > 0]
    most = max((flow.bytes for flow in drawn), default=1)
    arrows = []
    for flow in sorted(drawn, key=lambda flow: (flow.sender == HOST, flow.bytes)):
        part = math.sqrt(flow.bytes / most)
        host = flow.sender == HOST
        seen = 0.6 + 0.35 * part if host else 0.1 + 0.5 * part
        path = _curve(places[flow.sender], places[flow.receiver], middle, dot)
        said = f"{names[flow.sender]} → {names[flow.receiver]}: {amount(flow.bytes)}"
        arrows.append(
            f'<path class="flow{" host" if host else ""}" d="{path}" '
            f'stroke-width="{0.6 + 2.4 * part:.2f}" opacity="{seen:.2f}" '
            f'marker-end="url(#{"to-host" if host else "to-member"})">'
            f"<title>{escape(said)}</title></path>"
        )
    return arrows


def _curve(
    start: tuple[float, float], end: tuple[float, float], middle: tuple[float, float], dot: float
) -> str:
    """From rim to rim, bent to the inside and to its right: two that exchange have two arrows."""
    across, down = end[0] - start[0], end[1] - start[1]
    bend_x = (start[0] + end[0]) / 2 * 0.75 + middle[0] * 0.25 - 0.1 * down
    bend_y = (start[1] + end[1]) / 2 * 0.75 + middle[1] * 0.25 + 0.1 * across
    bend = (bend_x, bend_y)
    x1, y1 = _towards(start, bend, dot)
    x2, y2 = _towards(end, bend, dot + 3)
    return f"M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}"


def _towards(
    start: tuple[float, float], end: tuple[float, float], by: float
) -> tuple[float, float]:
    length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    return (
        start[0] + (end[0] - start[0]) * by / length,
        start[1] + (end[1] - start[1]) * by / length,
    )


def _node(
    member: SwarmMember,
    place: tuple[float, float],
    dot: float,
    middle: tuple[float, float],
    named: bool,
) -> str:
    x, y = place
    drawn = (
        f'<circle class="node{"" if member.here else " left"}" cx="{x:.1f}" cy="{y:.1f}" '
        f'r="{dot}"><title>{escape(member.name)}: {escape(member.state)}</title></circle>'
        f'<text class="number" x="{x:.1f}" y="{y + 3.6:.1f}" style="font-size:10px">'
        f"{member.position}</text>"
    )
    if not named:
        return drawn
    aside = x - middle[0]
    anchor = "middle" if abs(aside) < 8 else "start" if aside > 0 else "end"
    shift = 0.0 if anchor == "middle" else math.copysign(dot + 5, aside)
    down = dot + 15 if anchor == "middle" else 4.0
    name = member.name if len(member.name) <= AROUND_CHARACTERS else f"{member.name[:12]}…"
    return drawn + (
        f'<text class="{"who" if member.here else "gone"}" x="{x + shift:.1f}" '
        f'y="{y + down:.1f}" text-anchor="{anchor}">{escape(name)}</text>'
    )


def _host(place: tuple[float, float], dot: float) -> str:
    x, y = place
    return (
        f'<circle class="node host" cx="{x:.1f}" cy="{y:.1f}" r="{dot}"><title>the host</title>'
        f'</circle><text class="who" x="{x:.1f}" y="{y - dot - 4:.1f}" text-anchor="middle">host'
        "</text>"
    )


# -- in numbers ---------------------------------------------------------------------------------


def _table(swarm: SwarmStatus) -> str:
    rows = "".join(
        f"<tr><td>{member.position}. {escape(member.name)}</td><td>{_progress(member)}</td>"
        f"<td>{amount(member.from_host_bytes)}</td>"
        f"<td>{amount(member.received_bytes - member.from_host_bytes)}</td>"
        f"<td>{amount(member.passed_on_bytes)}</td><td>{amount(member.wasted_bytes)}</td>"
        f'<td>{member.bad_chunks}</td><td class="l">{escape(member.state)}</td></tr>'
        for member in swarm.members
    )
    others = swarm.others
    if others.members:
        rows += (
            f"<tr><td>and {others.members:,} more</td><td>{others.complete} of {others.here} "
            f'complete</td><td></td><td>{amount(others.received_bytes)} in all</td>'
            f'<td>{amount(others.passed_on_bytes)}</td><td></td><td></td><td class="l"></td></tr>'
        )  # fmt: skip
    head = (
        "<th>Volunteer</th><th>Has what it wants</th><th>From the host</th>"
        "<th>From others</th><th>Passed on</th><th>Of no use</th><th>Wrong chunks</th>"
        "<th class='l'>At the end</th>"
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _progress(member: SwarmMember) -> str:
    if not member.here:
        return "–"
    percent = math.floor(100 * member.progress)
    return (
        f'<span class="bar"><i style="width:{percent}%"></i></span>'
        f'<span class="pc">{percent} %</span>'
    )


def amount(count: float) -> str:
    """Bytes in three digits."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if count >= 0.9995 * 10**power:
            return f"{count / 10**power:.3g} {letter}B"
    return f"{count:.0f} B"
