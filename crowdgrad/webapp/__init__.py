"""The web app, as every process that has pages serves it: one document, one script, one style.

Vite builds it from `web/` into `static/`. The document carries what the script must know at once as
JSON (`boot`): where it is served from and what it may ask there. Nothing is loaded from elsewhere,
and no script runs but ours (`HEADERS`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from os import PathLike, stat_result
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"


def headers(style: str = "") -> dict[str, str]:
    """Of a page that loads the app; `style`: the sha256 of a style sheet inside it, in base64."""
    styles = f"'self' 'sha256-{style}'" if style else "'self'"
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'self'; style-src {styles}; "
            "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


HEADERS = headers()
"""Of every page and asset."""
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 26 26" aria-hidden="true">'
    '<g stroke="#3b82f6" stroke-width="2"><path d="M13 13 5 6M13 13 21 6M13 13 13 23"/></g>'
    '<g fill="#3b82f6"><circle cx="5" cy="6" r="3.4"/><circle cx="21" cy="6" r="3.4"/>'
    '<circle cx="13" cy="22" r="3.4"/></g><circle cx="13" cy="13" r="4.6" fill="#e8590c"/></svg>'
)
"""Helpers around one model."""
NOT_BUILT = (
    "The web app is not built here: run <code>./scripts/web</code> in the clone; if crowdgrad "
    "was installed from there, install it again then."
)


def built() -> bool:
    """Whether there is a script to serve; asked each time, since a build may come later."""
    return (STATIC / "assets" / "app.js").is_file()


def mount(app: Starlette, *, base: str = "") -> None:
    """Serve `/assets/*` on `app`; 404 for each of them while it is not built."""
    app.mount(f"{base}/assets", _Assets(directory=STATIC / "assets", check_dir=False))


def page(boot: Mapping[str, object], *, inner: str = "", title: str = "crowdgrad") -> str:
    """The document. `inner`: HTML that is there before the script is, and without it."""
    if not built():
        inner += f"<p>{NOT_BUILT}</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{icon()}{head()}</head>\n"
        f'<body><div id="app">{inner}</div>{boot_element(boot)}</body></html>\n'
    )


def icon() -> str:
    return f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}">'


def head() -> str:
    """What a page's head loads; nothing where it is not built."""
    if not built():
        return ""
    return (
        '<link rel="stylesheet" href="/assets/app.css">'
        '<script type="module" src="/assets/app.js"></script>'
    )


def boot_element(boot: Mapping[str, object]) -> str:
    """The JSON, in which nothing can end the element or begin another."""
    told = json.dumps(boot, ensure_ascii=False, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        told = told.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="boot">{told}</script>'


class _Assets(StaticFiles):
    async def check_config(self) -> None:
        """A folder that is not there yet is no mistake: its files are missing, that is all."""

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        response.headers["Cache-Control"] = "no-cache"  # names stay, contents change
        return response
