"""How light the web app is, in a real Chromium over loopback.

bundle_gzip_kB     script and style of the built app, each compressed by gzip
first_paint_ms     from asking for the panel to its first contentful paint, a fresh browser context
                   each time (the browser itself is running already)
tabs_50_cpu        of a core, that 50 open event streams take the panel beyond what one takes, while
                   a host trains
rows_1000_frame_ms the 95th percentile between two frames while a table of 1,000 volunteers scrolls
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from _report import Report, arguments
from playwright.sync_api import Browser, Page, WebSocketRoute, sync_playwright
from websockets.sync.client import ClientConnection

from crowdgrad import webapp
from tests.chromium import find
from tests.pages.panels import Running, panel
from tests.panel.living import Browser as Caller

JOB = """
title = "digits"
task = "crowdgrad.capture.models:digits_mlp"
data = "digits"
[stop]
epochs = 1000000
"""
PAINT = """() => new Promise((resolve) => {
  const tell = (list) => list.filter((one) => one.name === "first-contentful-paint")
    .forEach((one) => resolve(one.startTime));
  tell(performance.getEntriesByType("paint"));
  const later = new PerformanceObserver((list) => tell(list.getEntries()));
  later.observe({type: "paint", buffered: true});
})"""
SCROLL = """async (element) => {
  const gaps = [];
  let last = performance.now();
  for (let n = 0; n < 240; n += 1) {
    element.scrollTop += 60;
    if (element.scrollTop + element.clientHeight >= element.scrollHeight - 1) element.scrollTop = 0;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  return gaps.sort((a, b) => a - b)[Math.floor(0.95 * gaps.length)];
}"""


def bundle_kb() -> float:
    files = (webapp.STATIC / "assets").iterdir()
    return sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) / 1000


def first_paint_ms(browser: Browser, url: str) -> float:
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(url)
        page.get_by_role("navigation").wait_for()  # it was let in
        page.goto("about:blank")
        page.goto(url.partition("#")[0])
        return float(page.evaluate(PAINT))
    finally:
        context.close()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextlib.contextmanager
def hosting(home: Path) -> Iterator[str]:
    """A host that trains for as long as this lasts; its run's id."""
    (home / "job.toml").write_text(JOB)
    process = subprocess.Popen(
        [sys.executable, "-m", "crowdgrad", "host", "job.toml", "--host", "127.0.0.1", "--plain",
         "--runs", str(home / "runs"), "--home", str(home), "--no-supervise"],
        cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not (found := list(home.glob("runs/*/control.json"))):
            time.sleep(0.1)
        yield found[0].parent.name
    finally:
        process.terminate()
        process.wait(30)


def open_streams(running: Running, run: str, count: int) -> list[ClientConnection]:
    """So many listeners of the one event stream, each as a page has it."""
    browser = Caller(running.url)
    return [browser.listen(run) for _ in range(count)]


def share_of(running: Running, run: str, listeners: int, seconds: float) -> float:
    streams = open_streams(running, run, listeners)  # each is read by a thread of its own
    readers = [threading.Thread(target=_drain, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()
    try:
        time.sleep(2)
        before, began = cpu_s(running.process.pid), time.perf_counter()
        time.sleep(seconds)
        return (cpu_s(running.process.pid) - before) / (time.perf_counter() - began)
    finally:
        for stream in streams:
            stream.close()
        for reader in readers:
            reader.join()


def _drain(stream: ClientConnection) -> None:
    for _ in stream:
        continue


def crowd(status: dict[str, object], members: int) -> dict[str, object]:
    """The same status with so many members: a real one, repeated under other names."""
    [first, *_] = status["members"]
    rows = [
        {**first, "position": n, "id": f"{n:016x}", "name": f"volunteer-{n}"}
        for n in range(members)
    ]
    return {**status, "members": rows}


def frame_ms(page: Page, url: str, run: str, status: dict[str, object]) -> float:
    told = {"hello": {"version": ""}, "status": crowd(status, 1000)}

    def stream(socket: WebSocketRoute) -> None:
        for event, data in told.items():
            socket.send(json.dumps({"event": event, "data": data}))

    page.route_web_socket(re.compile(r"/api/events"), stream)
    page.goto("about:blank")
    page.goto(f"{url.partition('#')[0]}#/run/{run}")
    table = page.get_by_test_id("volunteers-scroll")
    table.wait_for()
    return float(table.evaluate(SCROLL))


def main() -> None:
    args = arguments(__doc__)
    report = Report("pages", args.quick)
    path = find()
    assert path is not None, "no Chromium here: apt-get install chromium"
    report.add("bundle_gzip_kB", [bundle_kb()])
    with (
        tempfile.TemporaryDirectory(prefix="crowdgrad-bench-") as name,
        panel(Path(name)) as running,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        paints = [first_paint_ms(browser, running.url) for _ in range(5 if args.quick else 15)]
        report.add("first_paint_ms", paints)
        seconds = 5.0 if args.quick else 20.0
        with hosting(Path(name)) as run:
            shares = [
                share_of(running, run, 50, seconds) - share_of(running, run, 1, seconds)
                for _ in range(1 if args.quick else 3)
            ]
            report.add("tabs_50_cpu", shares)
            page = browser.new_page()
            page.goto(running.url)
            page.get_by_role("navigation").wait_for()
            status = Caller(running.url).ask("GET", f"/api/runs/{run}/status")
            frames = [frame_ms(page, running.url, run, status) for _ in range(3)]
            report.add("rows_1000_frame_ms", frames)
        browser.close()
    report.write(args.json)


if __name__ == "__main__":
    main()
