"""Whether a host's data is what its host says it is: sealed with the key it has proven to us."""

from __future__ import annotations

from crowdgrad.data.sealing import check_seal
from crowdgrad.domain.data import Manifest, Seal
from crowdgrad.errors import DataAltered


def check_sealed(manifest: Manifest, seal: Seal | None, key: bytes) -> None:
    """`key`: the host's, as it has proven it; empty where it has proven none.

    Raises DataAltered for a seal that is not of this manifest or not by that key, or is missing.
    """
    if seal is not None:
        check_seal(manifest, seal, key or None)
    elif key:
        raise DataAltered(
            f"the host has proven a key, but has not sealed {manifest.title!r} with it.",
            advice="Tell the host, and help another job.",
        )
