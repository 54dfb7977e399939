"""`report.html`: how the run went, in one file that opens anywhere and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from crowdgrad.domain import cards
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.job import Prepared
from crowdgrad.host.members.departures import in_words
from crowdgrad.host.telling import swarm_report
from crowdgrad.host.telling.charts import Line, bar_chart, line_chart
from crowdgrad.host.telling.status import (
    MemberStatus,
    Point,
    StalenessBucket,
    Status,
    TimeSplit,
    spell,
)
from crowdgrad.host.telling.swarm_status import SwarmStatus
from crowdgrad.planner.label_noise import noise_in_words

FEW_BARS = 7
STYLE = """
:root{--ink:#1b2430;--dim:#66717f;--paper:#f6f7f9;--card:#fff;--edge:#e3e7ec;
--a:#2563eb;--b:#d9480f}
@media(prefers-color-scheme:dark){:root{--ink:#e8ecf1;--dim:#93a0b0;--paper:#12161c;--card:#1a2029;
--edge:#2b333f;--a:#6ea8fe;--b:#ff922b}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:40px 20px 64px}h1{font-size:30px;margin:0 0 4px}
h2{font-size:17px;margin:0 0 12px}.sub{color:var(--dim);margin:0 0 28px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(135px,1fr));gap:14px;
margin:0 0 22px}
.card,section{background:var(--card);border:1px solid var(--edge);border-radius:12px}
.card{padding:14px 18px}
.card b{display:block;white-space:nowrap;font-size:26px;letter-spacing:-.02em;line-height:1.25}
.card span{color:var(--dim);font-size:13px}
section{padding:20px 22px;margin:0 0 22px;overflow-x:auto}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:0 22px}
svg{width:100%;height:auto;display:block;overflow:visible}svg text{font-size:12px;fill:var(--dim)}
.grid{stroke:var(--edge)}polyline{fill:none;stroke-width:2.2;stroke-linejoin:round}
.mark{stroke:var(--dim);stroke-dasharray:4 4}rect.a{fill:var(--a)}
polyline.a{stroke:var(--a)}polyline.b{stroke:var(--b)}circle.a{fill:var(--a)}circle.b{fill:var(--b)}
.key{color:var(--dim);font-size:13px;margin:8px 0 0}.key span{margin-right:18px}
.key i{display:inline-block;width:14px;height:3px;margin:0 6px 3px 0;border-radius:2px}
.key i.a{background:var(--a)}.key i.b{background:var(--b)}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th{font-size:12px;color:var(--dim);font-weight:600;text-align:right;padding:6px 4px}
td{padding:8px 4px;border-top:1px solid var(--edge);text-align:right;white-space:nowrap}
th:first-child,td:first-child,th.l,td.l{text-align:left}td.l{white-space:normal;min-width:8em;overflow-wrap:anywhere;color:var(--dim)}
.bar{display:inline-block;width:48px;height:8px;border-radius:4px;background:var(--edge);
overflow:hidden;vertical-align:middle;margin-right:8px}
.bar i{display:block;height:100%;background:var(--a)}
.split{display:inline-flex;width:90px;height:8px;border-radius:4px;background:var(--edge);
overflow:hidden;vertical-align:middle}.split i{height:100%}.split .a,.key i.a{background:var(--a)}
.split .b{background:var(--b)}.split .c,.key i.c{background:var(--edge)}
p.note{color:var(--dim);font-size:14px;margin:0 0 12px}
.pc{display:inline-block;min-width:58px}.empty{color:var(--dim)}footer{color:var(--dim);font-size:13px}code{font-size:13px}
"""


def render(
    prepared: Prepared,
    status: Status,
    history: Sequence[Scores],
    swarm: SwarmStatus | None = None,
) -> str:
    """`swarm`: how the data had spread when it was over, where members passed it on."""
    job = prepared.job
    style = STYLE if swarm is None else STYLE + swarm_report.STYLE
    spread = "" if swarm is None else swarm_report.section(swarm)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(job.title)} · crowdgrad</title><style>{style}</style></head><body><main>
<h1>{escape(job.title)}</h1>
<p class="sub">{escape(_ending(status))}</p>
<div class="cards">{_cards(status)}</div>
<div class="two">{_charts(status, history)}</div>
{_labels(status)}<section><h2>Who trained it</h2>{_members(status.members)}</section>
{spread}<section><h2>Who came and went</h2>{_departures(status)}</section>
<section><h2>How</h2>{_details(prepared, status)}</section>
<footer>Run <code>{escape(job.id)}</code>. Program <code>{job.program[:16]}…</code>,
data <code>{job.manifest[:16]}…</code>. Written by crowdgrad.</footer>
</main></body></html>
"""


def _ending(status: Status) -> str:
    verb = {"finished": "Finished", "stopped": "Stopped early", "failed": "Failed"}
    ending = f"{verb.get(status.state, status.state)}: {status.reason}."
    return f"{ending} {status.notice}" if status.notice else ending


def _cards(status: Status) -> str:
    cards = []
    for label, found in (("test", status.test), ("best validation", status.best)):
        if found is not None:
            cards.append((spell(status, found), f"{label} {status.watched}"))
    cards += [
        (_duration(status.elapsed_s), "training time"),
        (_short(status.samples / max(status.elapsed_s, 1e-9)), "samples per second"),
        (_short(status.updates), "updates applied"),
        (f"{status.mean_staleness:.1f}", "mean staleness"),
        (str(status.took_part), "machines took part"),
    ]
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label in cards
    )


def _charts(status: Status, history: Sequence[Scores]) -> str:
    anew = _began_anew(history)
    charts = [
        (
            "Loss",
            line_chart(
                [
                    Line(name="validation", css="a", points=[(s.at_s, s.loss) for s in history]),
                    Line(
                        name="training",
                        css="b",
                        points=[
                            (s.at_s, s.train_loss) for s in history if s.train_loss is not None
                        ],
                    ),
                ],
                x_label="seconds",
                y_label="Loss",
                marks=anew,
            ),
        )
    ]
    if status.metric is not None:
        name = status.metric
        points = [(s.at_s, s.metrics[name]) for s in history]
        title = f"Validation {name} ({status.better} is better)"
        chart = line_chart(
            [Line(name=name, css="a", points=points)], x_label="seconds", y_label=title, marks=anew
        )
        charts.append((title, chart))
    charts.append(("How stale updates were", _staleness(status)))
    noted = f'<p class="key">{_restarts(status)}</p>' if anew else ""
    return "".join(
        f"<section><h2>{escape(title)}</h2>{chart}{noted if '<polyline' in chart else ''}</section>"
        for title, chart in charts
    )


def _began_anew(history: Sequence[Scores]) -> list[float]:
    """When training went on from a checkpoint: between two looks of different incarnations."""
    return [
        (before.at_s + after.at_s) / 2
        for before, after in pairwise(history)
        if before.version.incarnation != after.version.incarnation
    ]


def _restarts(status: Status) -> str:
    return (
        f"Dashed: it went on from a checkpoint (the host was started again "
        f"{_times(status.resumed)}; diverged {_times(status.setbacks)})."
    )


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _staleness(status: Status) -> str:
    many = len(status.staleness) > FEW_BARS  # then there is no room for ranges
    bars = [(str(b.most) if many else _range(b), float(b.updates)) for b in status.staleness]
    label = "changes meanwhile, at most" if many else "changes meanwhile"
    return bar_chart(bars, x_label=label, y_label="Updates by staleness")


def _range(bucket: StalenessBucket) -> str:
    same = bucket.least == bucket.most
    return str(bucket.least) if same else f"{bucket.least}–{bucket.most}"


def _labels(status: Status) -> str:
    """Whether labels look wrong, and the records to look at first."""
    noise = status.label_noise
    if noise is None:
        return ""
    told = f'<p class="note">{escape(noise_in_words(noise))}</p>'
    bars = [
        (f"{b.most:.2g}" if b.most is not None else "more", float(b.records))
        for b in noise.histogram
    ]
    chart = ""
    if bars:
        chart = bar_chart(bars, x_label="loss, below", y_label="Training records by loss")
    rows = "".join(
        f"<tr><td>{s.shard}</td><td>{s.row}</td><td>{s.loss:.3g}</td>"
        f'<td class="l">{escape(s.label)}</td></tr>'
        for s in noise.suspects
    )
    head = "<th>Shard</th><th>Row</th><th>Loss, at least</th><th class='l'>Label</th>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    return (
        f"<section><h2>Noise in labels</h2>{told}"
        f'<div class="two"><div>{chart}</div><div>{table}</div></div></section>\n'
    )


def _members(members: Sequence[MemberStatus]) -> str:
    rows = []
    for member in members:
        percent = f"{100 * member.share:.1f} %"
        bar = f'<span class="bar"><i style="width:{100 * member.share:.1f}%"></i></span>'
        rows.append(
            f"<tr><td>{member.position}. {escape(member.name)}</td>"
            f'<td>{bar}<span class="pc">{percent}</span></td>'
            f"<td>{member.samples:,}</td>"
            f"<td>{member.units:,}</td><td>{_short(member.credit)}FLOP</td>"
            f"<td>{_split(member.times)}</td>"
            f"<td>{_short(member.bytes_received + member.bytes_sent)}B</td>"
            f"<td>{member.mean_staleness:.1f}</td><td>{member.refused}</td>"
            f"<td>{member.ignored}</td>"
            f'<td class="l">{escape(member.state)}</td></tr>'
        )
    head = "<th>Volunteer</th><th>Share</th><th>Samples</th><th>Updates</th><th>Credit</th>"
    head += "<th>Time</th><th>Traffic</th>"
    head += "<th>Staleness</th><th>Refused</th><th>Too late</th><th class='l'>At the end</th>"
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        '<p class="key"><span><i class="a"></i>computing</span><span><i class="b"></i>'
        'exchanging</span><span><i class="c"></i>waiting for a unit</span></p>'
    )


def _split(times: TimeSplit) -> str:
    parts = (("a", "computing", times.compute_share), ("b", "exchanging", times.exchange_share),
             ("c", "waiting", times.wait_share))  # fmt: skip
    spelt = ", ".join(f"{name} {100 * share:.0f} %" for _, name, share in parts)
    bars = "".join(f'<i class="{css}" style="width:{100 * w:.1f}%"></i>' for css, _, w in parts)
    return f'<span class="split" title="{spelt}">{bars}</span>'


def _departures(status: Status) -> str:
    gone = sum(status.departures_by_kind.values())
    kinds = in_words(status.departures_by_kind)
    told = f"{status.arrivals} came, {gone} went{f' ({kinds})' if kinds else ''}."
    if not status.departures:
        return f'<p class="note">{escape(told)}</p>'
    if len(status.departures) < gone:
        told += f" The last {len(status.departures)}:"
    rows = "".join(
        f"<tr><td>{escape(d.name)}</td><td>{_duration(d.at_s)}</td><td>{_duration(d.stayed_s)}</td>"
        f'<td>{d.samples:,}</td><td class="l">{escape(d.reason)}</td></tr>'
        for d in reversed(status.departures)
    )
    head = "<th>Volunteer</th><th>Went at</th><th>Stayed</th><th>Samples</th><th class='l'>Why</th>"
    return (
        f'<p class="note">{escape(told)}</p>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _details(prepared: Prepared, status: Status) -> str:
    job, manifest = prepared.job, prepared.manifest
    counts = ", ".join(
        f"{manifest.records(split):,} {split}" for split in ("train", "validation", "test")
    )
    note = f" ({prepared.note})" if prepared.note else ""
    chosen = ", ".join(f"{name} = {value}" for name, value in job.hyperparameters.items())
    rows = [
        ("Recipe", f"{job.recipe} ({chosen})"),
        ("Data", f"{manifest.title}{note}: {counts} records"),
        *((f"Data: {what}", words) for what, words in cards.in_words(manifest.card)),
        ("Shards", str(len(manifest.shards))),
        *([("Data was added", _times(status.growths))] if job.growing else []),
        ("Model", _model(prepared.program.spec)),
        *([("Test metrics", _all_metrics(status.test))] if status.test else []),
        ("Epochs", f"{status.epochs_done:.2f} of {status.epochs}"),
        ("Refused updates", _reasons(status.refused, status.refused_by_reason)),
        ("Updates that came too late", _reasons(status.ignored, status.ignored_by_reason)),
        (
            "Traffic",
            f"{_short(status.bytes_received)}B received, {_short(status.bytes_sent)}B sent",
        ),
        ("Went back to a checkpoint", _times(status.setbacks)),
        ("The host was started again", _times(status.resumed)),
        ("Units set aside", f"{status.set_aside}"),
        ("Seed", _seed(prepared)),
    ]
    rows += _origin(prepared) + [("Note", note) for note in prepared.notes]
    cells = "".join(f'<tr><td>{escape(a)}</td><td class="l">{escape(b)}</td></tr>' for a, b in rows)
    return f"<table><tbody>{cells}</tbody></table>"


def _reasons(count: int, reasons: dict[str, int]) -> str:
    why = ", ".join(f"{reason.replace('_', ' ')} {n}" for reason, n in reasons.items())
    return f"{count} ({why})" if why else f"{count}"


def _model(spec: ProgramSpec) -> str:
    buffers = len(spec.buffers) + len(spec.fixed)
    return f"{spec.size:,} parameters" + (f", {buffers} buffers" if buffers else "")


def _all_metrics(found: Point) -> str:
    numbers = {**found.metrics, "loss": found.loss}
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())


def _seed(prepared: Prepared) -> str:
    if prepared.earlier is None:
        return str(prepared.job.seed)
    return f"{prepared.split_seed} for the splits, {prepared.job.seed} for orders and noise"


def _origin(prepared: Prepared) -> list[tuple[str, str]]:
    """Where the first weights come from, where they are not the model's own."""
    if prepared.earlier is not None:
        times = prepared.earlier.times + 1
        often = "" if times == 1 else f", the last of {times} it goes on from"
        return [("Continues", f"{prepared.earlier.id}{often}")]
    return [("Starts from", prepared.started_from)] if prepared.started_from else []


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _short(value: float) -> str:
    for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g} {letter}"
    return f"{value:.3g} " if value < 10 else f"{value:.0f} "
