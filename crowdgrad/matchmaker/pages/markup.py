"""HTML that is escaped by construction: text becomes markup only by passing through here.

Whatever is a plain `str` is a stranger's until proven otherwise and is escaped; only what these
functions return (`Html`) goes in as it is. So nothing has to be remembered at the place of use.
"""

from __future__ import annotations

from html import escape
from typing import TypeAlias
from urllib.parse import quote

VOID = frozenset({"br", "hr", "link", "meta"})
"""Elements that have no content and no end."""


_BREAKS = "\n\N{NO-BREAK SPACE}"
_UNSEEN = "\N{REPLACEMENT CHARACTER}"


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


Content: TypeAlias = str | Html | None
"""None: nothing."""


def text(said: str) -> Html:
    """What cannot be shown (control characters, half of a pair) becomes the sign for that."""
    shown = "".join(c if c.isprintable() or c in _BREAKS else _UNSEEN for c in said)
    return Html(escape(shown))


def join(*content: Content) -> Html:
    return Html("".join(c if isinstance(c, Html) else text(c) for c in content if c is not None))


def el(name: str, /, *content: Content, **attributes: str | float | None) -> Html:
    """An element. `class_` is written `class`, `aria_label` is written `aria-label`."""
    head = f"<{name}{''.join(_attribute(*pair) for pair in attributes.items())}>"
    return Html(head) if name in VOID else Html(f"{head}{join(*content)}</{name}>")


def said(words: str, name: str = "bdi", /, **attributes: str) -> Html:
    """What a stranger wrote, in whatever direction, without turning what stands beside it."""
    return el(name, words, dir="auto", **attributes)


def path(folder: str, name: str) -> str:
    """Where the page of something lies that a stranger has named."""
    return f"/{folder}/{quote(name, safe='', errors='replace')}"


def _attribute(name: str, value: str | float | None) -> str:
    if value is None:
        return ""
    return f' {name.rstrip("_").replace("_", "-")}="{text(str(value))}"'
