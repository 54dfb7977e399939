"""The frame of every page: head, landmarks, one stylesheet inside, and what a browser may load.

That is nothing: no scripts, no cookies, no fonts, no pictures but those written into the page.
`HEADERS` says so to the browser, which holds to it even if a stranger's words ever got through.
Where the web app is built, a page with a `boot` also loads that, which takes over what is inside
`#app`; without scripts it stays what it was. Such a page goes out with `APP_HEADERS`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

from crowdgrad import webapp
from crowdgrad.matchmaker.pages.markup import Content, Html, el, join

LIGHT = {
    "ink": "#1b2430", "dim": "#5a6572", "paper": "#f6f7f9", "card": "#ffffff", "edge": "#d9dfe6",
    "blue": "#1d5fd6", "tint": "#e7effd", "green": "#0b7a43", "orange": "#b3470a",
}  # fmt: skip
DARK = {
    "ink": "#e8ecf1", "dim": "#9aa7b6", "paper": "#12161c", "card": "#1a2029", "edge": "#323c4a",
    "blue": "#7fb0ff", "tint": "#1f2f4a", "green": "#5fd39a", "orange": "#ffa45c",
}  # fmt: skip
_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);overflow-wrap:anywhere;
font:17px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.wide{max-width:860px;margin:0 auto;padding-inline:20px}
.skip{position:absolute;left:-999px}
.skip:focus{left:12px;top:12px;padding:8px 14px;background:var(--card);z-index:1}
a{color:var(--blue);text-underline-offset:.18em}
a:focus-visible,code:focus-visible{outline:3px solid var(--blue);outline-offset:2px;
border-radius:4px}
:is(body,#app)>header{border-bottom:1px solid var(--edge);background:var(--card)}
:is(body,#app)>header .wide{display:flex;gap:8px 22px;align-items:center;flex-wrap:wrap;
padding-top:14px;padding-bottom:14px}
.brand{display:flex;gap:10px;align-items:center;font-weight:700;font-size:18px;color:var(--ink);
text-decoration:none;margin-right:auto}
.brand svg{width:26px;height:26px}
nav a{color:var(--dim);font-size:15px}
main{padding-top:34px;padding-bottom:56px}
h1{font-size:clamp(27px,6vw,38px);line-height:1.18;letter-spacing:-.02em;margin:0 0 12px}
h2{font-size:20px;line-height:1.3;margin:0 0 12px}
p{margin:0 0 14px}
ul{margin:0 0 14px;padding-left:1.2em}li{margin:4px 0}
.lead{font-size:19px;color:var(--dim);max-width:38em;margin:0 0 26px}
section{background:var(--card);border:1px solid var(--edge);border-radius:14px;padding:22px;
margin:0 0 20px}
section>:last-child{margin-bottom:0}
.dim{color:var(--dim)}.small{font-size:14.5px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(104px,1fr));gap:14px;
margin:0 0 20px}
.facts div{background:var(--card);border:1px solid var(--edge);border-radius:14px;padding:14px 18px}
.facts.four{grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}
.facts.four dd{font-size:21px}
.facts dt{color:var(--dim);font-size:14px}.facts dd{margin:0;font-size:25px;font-weight:650;
letter-spacing:-.01em;line-height:1.25}
.jobs{list-style:none;padding:0;margin:0}
.jobs li{margin:0;padding:18px 0;border-top:1px solid var(--edge);display:grid;
grid-template-columns:1fr auto;gap:4px 18px;align-items:baseline}
.jobs li:first-child{border-top:0;padding-top:2px}.jobs li:last-child{padding-bottom:2px}
.jobs h3{font-size:18px;line-height:1.3;margin:0}
.jobs .dim,.jobs .meter{grid-column:1/-1}
.tag{display:inline-block;font-size:14px;line-height:1.4;padding:2px 10px;border-radius:20px;
background:var(--tint);color:var(--ink)}
.tag.good::before,.tag.full::before,.tag.away::before{content:"";display:inline-block;width:9px;
height:9px;border-radius:50%;margin-right:7px;background:var(--green)}
.tag.full::before{background:var(--orange)}.tag.away::before{background:var(--dim)}
.tags{display:flex;flex-wrap:wrap;gap:8px;margin:0 0 18px}
.meter{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:center}
.meter svg{flex:1 1 150px;height:10px;border-radius:5px;display:block}
.meter span{font-size:15px;color:var(--dim)}
rect.back{fill:var(--edge)}rect.part{fill:var(--blue);opacity:.42}rect.full{fill:var(--blue)}
.code{font:600 17px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:nowrap}
.big{font-size:clamp(42px,13vw,68px);line-height:1.1;letter-spacing:.02em;margin:0 0 12px}
code{font:15px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.command{display:block;padding:13px 16px;border-radius:10px;background:var(--tint);
color:var(--ink);-webkit-user-select:all;user-select:all;margin:0 0 14px;overflow-wrap:anywhere}
.join{display:grid;grid-template-columns:1fr 210px;gap:22px;align-items:center}
.qr{margin:0;text-align:center}.qr svg{display:block;width:100%;max-width:210px;height:auto;
border-radius:10px;margin:0 auto 6px}
.prose{white-space:pre-line}
.table{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:15px;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--dim);padding:0 0 8px}
th{font-size:14px;color:var(--dim);font-weight:600;text-align:right;padding:6px 0 6px 14px;
vertical-align:bottom;overflow-wrap:normal}
td,tbody th{padding:10px 0 10px 14px;border-top:1px solid var(--edge);text-align:right;
vertical-align:top}
tbody th{font-weight:500;font-size:15px;color:var(--ink);overflow-wrap:anywhere}
h1 code{font-size:.72em;letter-spacing:0}
th:first-child,td:first-child{text-align:left;padding-left:0}
td .sub,th .sub{display:block;color:var(--dim);font-size:13.5px;font-weight:400}
.words td,.words th{text-align:left}.words tbody th{font-weight:650}
.words th:first-child{width:9.5em}.words td+td{width:13em;color:var(--dim)}
figure{margin:0 0 20px}figcaption{color:var(--dim);font-size:14px}
.bars{display:grid;grid-template-columns:minmax(90px,30%) 1fr auto;gap:9px 14px;
align-items:center;margin:0 0 10px;font-size:15px}
.bars svg{width:100%;height:14px;border-radius:4px;display:block}
.bars .amount{text-align:right;font-variant-numeric:tabular-nums}
.bars .label{overflow:hidden;white-space:nowrap;text-overflow:ellipsis}
:is(body,#app)>footer{border-top:1px solid var(--edge);color:var(--dim);font-size:14.5px}
:is(body,#app)>footer .wide{padding-top:18px;padding-bottom:28px}
@media(max-width:600px){.join{grid-template-columns:1fr}section{padding:18px}
.wide{padding-inline:14px}main{padding-top:24px}.facts{gap:10px}.facts div{padding:11px 14px}
.facts dd{font-size:21px}
.words tbody th:first-child,.words tbody td,.words td+td{display:block;width:auto;
padding:12px 0 2px}
.words tbody td{border-top:0;padding:0 0 4px}.words tbody td:last-child{padding-bottom:12px}
.words thead{display:none}}
@media print{:is(body,#app)>header nav,.skip{display:none}}
"""


def _palette(colours: dict[str, str]) -> str:
    return ":root{" + "".join(f"--{name}:{value};" for name, value in colours.items()) + "}"


STYLE = (
    f"{_palette(LIGHT)}@media(prefers-color-scheme:dark){{{_palette(DARK)}}}"
    ":root{color-scheme:light dark}" + _RULES
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""To be sent with every page and picture."""
APP_HEADERS = webapp.headers(_STYLE_HASH)
"""Instead, with a page that loads the web app."""

NO_SCRIPTS = "No cookies, no scripts, no e-mail: "


def page(title: str, *content: Content, boot: Mapping[str, object] | None = None) -> str:
    """A whole document. `title` is what the browser's tab says; `boot`: for the web app, which is
    to take over."""
    head = join(
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width,initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{title} · crowdgrad"),
        Html(webapp.icon()),
        el("style", Html(STYLE)),
        Html(webapp.head()) if boot is not None else None,
    )
    body = join(
        el("a", "Skip to the content", class_="skip", href="#content"),
        el("header", _header()),
        el("main", *content, id="content", class_="wide"),
        el("footer", _footer("No cookies, no e-mail: " if boot is not None else NO_SCRIPTS)),
    )
    if boot is not None:
        body = join(el("div", body, id="app"), Html(webapp.boot_element(boot)))
    document = el("html", el("head", head), el("body", body), lang="en")
    return f"<!doctype html>\n{document}\n"


def _header() -> Html:
    brand = el("a", Html(webapp.ICON), el("span", "crowdgrad"), class_="brand", href="/")
    links = el("nav", el("a", "Privacy", href="/privacy"), aria_label="Pages")
    return el("div", brand, links, class_="wide")


def _footer(beginning: str) -> Html:
    return el(
        "div",
        beginning,
        el("a", "what is kept about you", href="/privacy"),
        ". For programs: ",
        el("a", "openapi.json", href="/openapi.json"),
        ".",
        class_="wide",
    )
