"""Tables and pictures of docs/benchmarks.md, made from the results of `make bench`."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_serving.bench.load import charts
from cluster_serving.bench.suite.session import middle

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

_CURVES = {"requests": "requests", "bytes": "bytes per request", "clients": "clients"}


def write(results: Mapping[str, Any], document: Path) -> list[Path]:
    """Write the tables between the document's markers, and the pictures into `images/` beside it.

    Rows that the results lack keep their sections.

    Returns:
        The files of the pictures.

    Raises:
        ValueError: If the document has no markers.
    """
    text = document.read_text("utf8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{document} has no line {BEGIN} … {END}")
    pictures = draw(results["rows"])
    folder = document.parent / "images"
    folder.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        (folder / f"{name}.svg").write_text(picture, "utf8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    written = body(results, pictures, earlier=text[begin:end])
    document.write_text(f"{text[:begin]}\n\n{written}\n{text[end:]}", "utf8")
    return [folder / f"{name}.svg" for name in pictures]


def body(results: Mapping[str, Any], pictures: Iterable[str] = (), earlier: str = "") -> str:
    """Return the Markdown between the markers.

    Sections of rows that the results lack are those of the `earlier` Markdown. Each new section then says where it was
    measured, if that is not what the first line of the `earlier` Markdown says.
    """
    machine, rows, pictures = results["machine"], results["rows"], set(pictures)
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    measured = (
        f"Measured on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']:g} GB, {machine['system']}, "
        f"Python {machine['python']}, {packages}; rounds: {results['settings']['rounds']}.\n"
    )
    first, *sections = re.split(r"^(?=### )", earlier.strip() + "\n", flags=re.MULTILINE)
    kept = {section.partition("\n")[0]: section for section in sections}
    some_kept = any(f"### {title}" in kept for name, (title, _) in _SECTIONS.items() if name not in rows)
    head = f"{first.strip()}\n" if some_kept else measured
    parts = [head]
    for name, (title, section) in _SECTIONS.items():
        heading = f"### {title}"
        if name not in rows:
            parts += [kept[heading]] if heading in kept else []
            continue
        parts.append(f"{heading}\n")
        if "failed" in rows[name]:
            parts.append(f"Not measured: {rows[name]['failed']}\n")
            continue
        parts += [measured] if measured != head else []
        parts.append(section(rows[name]))
        parts += [
            f"![{title}](images/{picture}.svg)\n" for picture in sorted(pictures) if picture.split("-")[0] == name
        ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def draw(rows: Mapping[str, Any]) -> dict[str, str]:
    """Draw the pictures of the rows: file name → SVG."""
    measured = {name: row for name, row in rows.items() if "failed" not in row}
    pictures: dict[str, str] = {}
    for name, row in measured.items():
        title, section = _SECTIONS[name]
        if section is _compared:
            rates = {server: middle(m["runs"], "rate") for server, m in _servers(row).items() if "runs" in m}
            pictures[name] = charts.bars(title, rates, "requests per second")
    for name in {"update", "machine_dies"} & measured.keys():
        gaps = {server: middle(m["runs"], "gap_ms") for server, m in _servers(measured[name]).items() if "runs" in m}
        pictures[name] = charts.bars(_SECTIONS[name][0], gaps, "longest time without an answer, ms")
    if "scaling" in measured:
        points = [(float(p["slots"]), p["result"]["rate"]) for p in measured["scaling"]["points"]]
        (first_slots, first_rate), *_ = points
        series = {"measured": points, "linear": [(slots, first_rate / first_slots * slots) for slots, _ in points]}
        pictures["scaling"] = charts.lines(_SECTIONS["scaling"][0], series, "task slots", "requests/s", "xy")
    if "costs" in measured:
        for name, label in _CURVES.items():
            points = measured["costs"][name]
            series = {
                role: [(p["x"], p["result"]["cpu_seconds_per_1000"].get(role, 0.0)) for p in points]
                for role in _roles(points)
            }
            pictures[f"costs-{name}"] = charts.lines("CPU seconds per 1,000 requests", series, label, "CPU s", "xy")
    return pictures


def _servers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"Cluster Serving": {"runs": row["ours"]}, **row["others"]}


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _compared(row: Mapping[str, Any]) -> str:
    ours, layouts = row["ours"], row.get("layouts", {})
    lines = [_server("**Cluster Serving**", layouts.get("ours", ""), {"runs": ours})]
    lines += [_server(name, layouts.get(name, ""), other) for name, other in row["others"].items()]
    lines += [
        _server(name, "", {"failed": layout.removeprefix("failed: ")})
        for name, layout in layouts.items()
        if layout.startswith("failed")
    ]
    heads = ["", "copies x threads", "answers/s", "ours to theirs (spread)", "p50 ms", "p99 ms", "lost, wrong"]
    share = middle(ours, "cpu_share", "load generator")
    return f"{table(heads, lines)}\nThe load generator used {share:.2f} of a core of the same machine.\n"


def _server(name: str, layout: str, measured: Mapping[str, Any]) -> list[str]:
    if "runs" not in measured:
        return [name, layout, f"failed: {_line(measured['failed'])}", "", "", "", ""]
    runs = measured["runs"]
    return [name, layout, f"{middle(runs, 'rate'):,.1f}", _spread(measured.get("ratio")), *_quality(runs)]


def _spread(ratio: Mapping[str, float] | None) -> str:
    return "" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _roles(points: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({role for point in points for role in point["result"]["cpu_seconds_per_1000"]})


def _quality(runs: Sequence[Mapping[str, Any]], percentiles: Sequence[str] = ("p50", "p99")) -> list[str]:
    """Return latencies, and the numbers of lost and wrong requests; empty cells where they were not measured."""
    if "latency_ms" not in runs[0]:
        return [""] * (len(percentiles) + 1)
    counts = f"{sum(run['lost'] for run in runs)}, {sum(run['wrong'] for run in runs)}"
    return [f"{middle(runs, 'latency_ms', p):,.2f}" for p in percentiles] + [counts]


def _latency(row: Mapping[str, Any]) -> str:
    runs = row["ours"]
    cells = _quality(runs, ("p50", "p95", "p99", "max"))
    heads = ["answers/s", "p50 ms", "p95 ms", "p99 ms", "max ms", "lost, wrong"]
    return table(heads, [[f"{middle(runs, 'rate'):,.0f}", *cells]])


def _scaling(row: Mapping[str, Any]) -> str:
    lines = [
        (p["slots"], p["taskmanagers"], f"{p['result']['rate']:.1f}", f"{p['of_linear']:.3f}") for p in row["points"]
    ]
    return table(["task slots", "TaskManagers", "answers/s", "of linear"], lines)


def _backlog(row: Mapping[str, Any]) -> str:
    runs, other = row["ours"], row["others"]["no backlog"]
    lines: list[list[object]] = [
        [f"{row['waiting']:,}", f"{middle(runs, 'rate'):,.0f}", ""],
        [512, f"{middle(other['runs'], 'rate'):,.0f}", _spread(other["ratio"])],
    ]
    return table(["requests in flight", "answers/s", "ratio (spread)"], lines)


def _start(row: Mapping[str, Any]) -> str:
    return table(["command, s", "first answer, s"], [(t["command_s"], t["first_answer_s"]) for t in row["times"]])


def _steady(row: Mapping[str, Any], timed: bool) -> str:
    """Return the table of a steady load with a change; `timed` if the change has a duration."""
    lines: list[list[object]] = []
    for name, measured in _servers(row).items():
        if "runs" not in measured:
            lines.append([name, f"failed: {_line(measured['failed'])}", *[""] * (7 + timed)])
            continue
        runs = measured["runs"]
        lines.append(
            [
                f"**{name}**" if name == "Cluster Serving" else name,
                f"{sum(run['requests'] for run in runs):,}",
                f"{sum(run['failed'] for run in runs)}, {sum(run['wrong'] for run in runs)}",
                f"{middle(runs, 'before_ms', 'p50'):,.0f}",
                f"{middle(runs, 'before_ms', 'p99'):,.0f}",
                f"{middle(runs, 'during_ms', 'p99'):,.0f}",
                f"{middle(runs, 'gap_ms'):,.0f}",
                _spread(measured.get("ratio")),
                f"{middle(runs, 'wait_ms'):,.0f}",
                *([f"{middle(runs, 'update_s'):.1f}"] if timed else []),
            ]
        )
    heads = ["", "requests", "failed, wrong", "p50 before, ms", "p99 before, ms", "p99 during, ms", "longest gap, ms"]
    heads += ["gap, ours to theirs (spread)", "longest wait, ms", *(["update, s"] if timed else [])]
    return table(heads, lines)


def _pieces(row: Mapping[str, Any]) -> str:
    names = ("first_ms", "longest_first_ms", "p50_ms", "p99_ms")
    lines = [
        [run["client"], run["streams"], f"{run['pieces']:,}", *(f"{run[name]:.1f}" for name in names)]
        for run in row["runs"]
    ]
    heads = ["client", "answers at a time", "pieces", "first piece, ms", "longest of these", "others: p50, ms"]
    return table([*heads, "p99, ms"], lines)


def _costs(row: Mapping[str, Any]) -> str:
    parts = []
    for name, label in _CURVES.items():
        roles = _roles(row[name])
        lines = []
        for point in row[name]:
            result = point["result"]
            cpu = [f"{result['cpu_seconds_per_1000'].get(role, 0):.3f}" for role in roles]
            p50 = result["latency_ms"]["p50"]
            lines.append([f"{point['x']:,}", f"{result['rate']:,.0f}", f"{p50:,.2f}" if p50 else "", *cpu])
        parts.append(table([label, "answers/s", "p50 ms", *(f"{role}, CPU s per 1,000" for role in roles)], lines))
    return "\n".join(parts)


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:160]


_SECTIONS: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "images": ("JPEG to best class, 8 in flight", _compared),
    "images_float32": ("JPEG to best class in float32, 8 in flight", _compared),
    "tensors": ("Raw tensors, 8 in flight", _compared),
    "tensors_float32": ("Raw tensors in float32, 8 in flight", _compared),
    "vector_latency": ("Small vector, one in flight", _latency),
    "vector_pipelined": ("Small vector, pipelined", _compared),
    "images_http": ("JPEG to best class over HTTP, the same JSON to each server, 8 in flight", _compared),
    "images_http_float32": (
        "JPEG to best class over HTTP, the same JSON to each server, in float32, 8 in flight",
        _compared,
    ),
    "image_latency_http": ("JPEG to best class over HTTP, the same JSON to each server, one in flight", _compared),
    "classes_http": ("JPEG to 1,000 values as JSON over HTTP, 8 in flight", _compared),
    "vector_http": ("Small vector over HTTP, 32 in flight", _compared),
    "vector_http_128": ("Small vector over HTTP, 128 in flight", _compared),
    "rows_16": ("Requests of 16 small vectors over HTTP, 8 in flight", _compared),
    "rows_256": ("Requests of 256 small vectors over HTTP, 8 in flight", _compared),
    "as_installed": ("JPEG to best class over HTTP, 8 in flight, without keys for the layout", _compared),
    "workers": ("Vector of 24,576 numbers as JSON over HTTP, 32 in flight, front end with workers: 2", _compared),
    "scaling": ("Scaling over task slots, with a model that sleeps 50 ms", _scaling),
    "backlog": ("A long queue", _backlog),
    "start": ("From a stopped machine to the first answer", _start),
    "update": ("A new version of the model under load, 8 in flight", partial(_steady, timed=True)),
    "machine_dies": ("One of two machines dies under load, 8 in flight", partial(_steady, timed=False)),
    "handler": ("A handler that passes everything on, small vector, 512 in flight", _compared),
    "handler_images": ("A handler that passes everything on, JPEG, 32 in flight", _compared),
    "lengths": ("Texts of different lengths, small encoder, 64 in flight", _compared),
    "lengths_minilm": ("Texts of different lengths, encoder as MiniLM, 64 in flight", _compared),
    "pieces": ("From the making of a piece of an answer to its arrival", _pieces),
    "costs": ("What a request costs", _costs),
}
"""Row → title of its section, and function that writes the section."""


def main(
    results: Annotated[Path, typer.Argument()] = Path(".bench/results.json"),
    document: Annotated[Path, typer.Argument()] = Path("docs/benchmarks.md"),
) -> None:
    """Write the tables and pictures of a document."""
    pictures = write(json.loads(results.read_text("utf8")), document)
    print(f"Wrote {document} and {len(pictures)} pictures")


if __name__ == "__main__":
    typer.run(main)
