"""The report as one HTML file, which loads nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cluster_serving.bench.load import charts
from cluster_serving.bench.load.output import HEADS, cells, label, machine
from cluster_serving.bench.load.result import LoadResult

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
svg{max-width:100%;height:auto}
.bad{color:#c22;font-weight:600}
"""


def page(results: Sequence[LoadResult], facts: Mapping[str, Any]) -> str:
    """Return the text of the file. Facts about the measurement are shown as they are."""
    title = f"{facts.get('job', 'benchmark')}: load test"
    parts = [f"<h1>{escape(title)}</h1>", _facts(facts), "<h2>Results</h2>", _table(results)]
    closed = [result for result in results if result.mode != "open"]
    if len(closed) > 1:
        rates = {"answered": [(float(r.concurrency), r.achieved) for r in closed]}
        parts.append(charts.lines("Throughput", rates, "requests in flight", "requests/s", "x"))
        latencies = {
            name: [(float(r.concurrency), getattr(r.latency_ms, name)) for r in closed]
            for name in ("p50", "p95", "p99")
        }
        parts.append(charts.lines("Latency", latencies, "requests in flight", "ms", "xy"))
    for result in results:
        parts.append(f"<h2>{escape(label(result))}</h2>")
        windows = {"answered": [(float(index + 1), rate) for index, rate in enumerate(result.windows)]}
        parts.append(charts.lines("Rate over time", windows, "window", "requests/s"))
        borders, counts = result.histogram["borders_ms"], result.histogram["counts"]
        parts.append(charts.histogram("Latency distribution", borders, counts, "ms"))
        if result.cpu_seconds_per_1000:
            parts.append(charts.bars("Cost", result.cpu_seconds_per_1000, "CPU seconds per 1,000 requests"))
        if job := result.job:
            times = {"queue wait": job["queueWaitMs"], "inference": job["inferenceMs"], "write": job["writeMs"]}
            parts.append(charts.bars("Time of a batch", times, "ms"))
            sizes = {f"batch of up to {bound}": float(count) for bound, count in job["batchSizes"].items()}
            parts.append(charts.bars("Batch sizes", sizes, f"of {job['batches']:,} batches"))
    parts += ["<h2>Machine</h2>", _facts(machine())]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(_plain(value))}</td></tr>" for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _table(results: Sequence[LoadResult]) -> str:
    rows = ""
    for result in results:
        bad = ' class="bad"' if result.tally.errors or result.tally.lost or result.tally.wrong else ""
        rows += f"<tr{bad}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells(result))}</tr>"
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in HEADS)}</tr>{rows}</table>"
