"""Pictures as SVG, written by hand: they need no style attributes and load nothing."""

from __future__ import annotations

import io

import segno

from crowdgrad.matchmaker.pages.markup import Html, el


def qr_svg(link: str) -> str:
    """A picture of a link for a phone's camera: a whole SVG file that also goes into a page.

    Dark on white in either scheme, since many cameras read nothing else.
    """
    file = io.BytesIO()
    segno.make_qr(link, error="m").save(
        file,
        kind="svg",
        xmldecl=False,
        nl=False,
        omitsize=True,
        dark="#000",
        light="#fff",
        border=3,
        title=f"QR code of {link}",
    )
    return file.getvalue().decode()


def bar(part: float, whole: float, of: float, label: str) -> Html:
    """`whole` of `of`, and `part` of it in full colour. `label` is what it says to the blind."""
    return el(
        "svg",
        el("rect", class_="back", width=100, height=10),
        el("rect", class_="part", width=_percent(whole, of), height=10),
        el("rect", class_="full", width=_percent(part, of), height=10),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def _percent(part: float, of: float) -> str:
    return f"{100 * min(part / of, 1.0) if of > 0 else 0.0:.4g}"
