"""Why this job is helped and no other, in plain words for its owner."""

from __future__ import annotations

from collections.abc import Collection

from crowdgrad.errors import one_line

NEARBY = "It is on your own network."
MAX_SAID = 300
"""Of a matchmaker's own words."""


def named(how: str) -> str:
    """`how`: by a link, an address, a code or an id."""
    return f"You named it, by its {how}."


def matched(reason: str, cause: str, liked: Collection[str]) -> str:
    """As the matchmaker says; where it does not, as far as we know. `liked`: causes."""
    said = one_line(reason)[:MAX_SAID].rstrip(".")
    if said:
        return f"The matchmaker found it for you: {said}."
    theme = one_line(cause)
    if theme and theme.casefold() in {one_line(one).casefold() for one in liked}:
        return f"You like to help {theme}."
    return "The matchmaker found it for you."
