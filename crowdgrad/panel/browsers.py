"""Where a browser lies that can open the panel in a window of its own: Chromium or one of its kind.

On Linux it is a command. On macOS and Windows browsers are in no PATH, but where everybody's are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
            "brave-browser", "microsoft-edge")  # fmt: skip
APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
"""On macOS."""
PROGRAMS = (
    ("Google", "Chrome", "Application", "chrome.exe"),
    ("Chromium", "Application", "chrome.exe"),
    ("Microsoft", "Edge", "Application", "msedge.exe"),
    ("BraveSoftware", "Brave-Browser", "Application", "brave.exe"),
)
"""On Windows, below one of these folders:"""
FOLDERS = ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData")


def usual_places(platform: str, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """`platform`: as in `sys.platform`. Of all systems but these two nothing is known."""
    if platform == "darwin":
        roots = [Path("/Applications")]
        if "HOME" in environment:
            roots.append(Path(environment["HOME"]) / "Applications")
        return tuple(
            root / f"{app}.app" / "Contents" / "MacOS" / app for app in APPS for root in roots
        )
    if platform == "win32":
        known = {name.upper(): value for name, value in environment.items()}
        roots = [Path(known[name.upper()]) for name in FOLDERS if name.upper() in known]
        return tuple(root.joinpath(*parts) for parts in PROGRAMS for root in roots)
    return ()


def find_chromium(platform: str, environment: Mapping[str, str] = os.environ) -> str | None:
    command = next(filter(None, map(shutil.which, COMMANDS)), None)
    if command is not None:
        return command
    places = usual_places(platform, environment)
    return next((str(place) for place in places if place.is_file()), None)
