"""A host that has proven a key must have sealed its data with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crowdgrad.data.sealing import seal
from crowdgrad.errors import DataAltered
from crowdgrad.net.identity import guest
from crowdgrad.volunteer.seals import check_sealed
from tests.host import small

HOST, OTHER = guest("host"), guest("other")
MANIFEST = small.manifest()[0]


def test_what_the_host_has_sealed_is_taken() -> None:
    check_sealed(MANIFEST, seal(MANIFEST, HOST), HOST.public)


def test_a_host_without_a_key_need_not_seal_but_must_not_lie() -> None:
    check_sealed(MANIFEST, None, b"")
    check_sealed(MANIFEST, seal(MANIFEST, OTHER), b"")
    with pytest.raises(DataAltered, match="root"):
        check_sealed(replace(MANIFEST, title="other"), seal(MANIFEST, OTHER), b"")


def test_a_missing_or_foreign_seal_is_refused() -> None:
    with pytest.raises(DataAltered, match="not sealed"):
        check_sealed(MANIFEST, None, HOST.public)
    with pytest.raises(DataAltered, match="sealed with the key"):
        check_sealed(MANIFEST, seal(MANIFEST, OTHER), HOST.public)
