"""Tensors that would be read from files of the volunteer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.program.hostile.draft import GRADIENT, Case, program, with_nodes
from tests.program.hostile.proto import (
    FLOAT,
    Tensor,
    block,
    blocks,
    node,
    number,
    tensor,
)

PATHS = {
    "beside": "weights.bin",
    "below": "folder/weights.bin",
    "dot": "./weights.bin",
    "parent": "../secret",
    "far_up": "../" * 30 + "etc/passwd",
    "absolute": "/etc/passwd",
    "key_file": "../../.ssh/id_ed25519",
    "proc": "/proc/self/environ",
    "memory": "/proc/self/mem",
    "descriptor": "/dev/fd/0",
    "endless": "/dev/zero",
    "blocking": "/dev/tty",
    "home": "~/.netrc",
    "variable": "$HOME/.netrc",
    "windows": "C:\\Windows\\win.ini",
    "windows_device": "\\\\.\\PhysicalDrive0",
    "windows_parent": "..\\..\\secret",
    "share": "\\\\attacker\\share\\x",
    "share_slashes": "//attacker/share/x",
    "url": "https://attacker.example/x",
    "file_url": "file:///etc/passwd",
    "percent": "%2e%2e%2fsecret",
    "cut_by_zero": "safe.bin\0../../etc/passwd",
    "empty": "",
    "long": "a" * 5000,
    "not_text": b"\xff\xfe/etc",
    "memory_address": "*/_ORT_MEM_ADDR_/*",
}


def entry(key: str, value: str | bytes) -> bytes:
    """A StringStringEntryProto."""
    return block(1, key) + block(2, value)


def outside(path: str | bytes, *more: bytes, name: str = "k", kind: int = 1) -> Tensor:
    """A tensor whose numbers lie in a file."""
    entries = blocks(13, (entry("location", path), *more))
    return Tensor(number(1, 4) + number(2, FLOAT) + block(8, name) + entries + number(14, kind))


def _case(name: str, says: str, found: Tensor) -> Case:
    return Case(
        name=f"external/{name}",
        says=says,
        reason="a constant of .* has field 1[34]|kept in another file",
        make=lambda: program(GRADIENT.plus(constants=[found])),
    )


def cases() -> Iterator[Case]:
    for name, path in PATHS.items():
        yield _case(name, f"a constant lies in {path[:30]!r}", outside(path))
    data = bytes(16)
    both = tensor("k", FLOAT, (4,), data, blocks(13, [entry("location", "x")]) + number(14, 1))
    yield _case("beside_data", "numbers here and a file too", both)
    yield _case("flag_alone", "said to be outside, without saying where",
                tensor("k", FLOAT, (4,), data, number(14, 1)))  # fmt: skip
    yield _case("flag_of_default", "said to be inside, which nobody needs to say",
                tensor("k", FLOAT, (4,), data, number(14, 0)))  # fmt: skip
    yield _case("entry_alone", "a file without the flag",
                tensor("k", FLOAT, (4,), data, blocks(13, [entry("location", "x")])))  # fmt: skip
    yield _case("offset", "part of a file, from before its beginning",
                outside("x", entry("offset", "-1"), entry("length", "99999999999")))  # fmt: skip
    yield _case("checksum", "a file with a checksum", outside("x", entry("checksum", "0" * 40)))
    yield _case("unknown_place", "a place of which no standard knows", outside("x", kind=7))
    yield Case(
        name="external/in_an_attribute",
        says="the value of a Constant lies in a file",
        reason="a constant of .* has field 1[34]",
        make=lambda: with_nodes(node("Constant", "", "k", value=outside("../x", name=""))),
    )
    yield Case(
        name="external/fill",
        says="the value of a ConstantOfShape lies in a file",
        reason="a constant of .* has field 1[34]",
        make=lambda: with_nodes(
            node("ConstantOfShape", "first", "k", value=outside("/etc/passwd", name=""))
        ),
    )
