"""Tables of docs/explanation/measurements.md, made from the results of `make bench`."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from cluster_serving.bench.suite.repository import BARS
from cluster_serving.bench.suite.rows import ROWS
from cluster_serving.bench.suite.session import middle

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

Cells = Sequence[object]


def write(results: Mapping[str, Any], document: Path) -> None:
    """Write the tables between the document's markers. Rows that the results lack keep their sections.

    Raises:
        ValueError: If the document has no markers.
    """
    text = document.read_text("utf8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{document} has no line {BEGIN} … {END}")
    head, _, rest = text.partition(BEGIN)
    earlier, _, tail = rest.partition(END)
    document.write_text(f"{head}{BEGIN}\n\n{body(results, earlier)}\n{END}{tail}", "utf8")


def body(results: Mapping[str, Any], earlier: str = "") -> str:
    """Return the Markdown between the markers.

    Sections of rows that the results lack are those of the `earlier` Markdown. Each new section then says where it was
    measured, if that is not what the first line of the `earlier` Markdown says.
    """
    rows, measured = results["rows"], _measured(results)
    first, *sections = re.split(r"^(?=### )", earlier.strip() + "\n", flags=re.MULTILINE)
    kept = {section.partition("\n")[0]: section for section in sections}
    some_kept = any(f"### {row.title}" in kept for name, row in ROWS.items() if name not in rows)
    parts = [first.strip() if some_kept else measured]
    for name, row in ROWS.items():
        heading = f"### {row.title}"
        if name in rows:
            where = [measured] if measured != parts[0] else []
            parts += [heading, *where, _TABLES[row.table](rows[name])] if "failed" not in rows[name] else [heading]
            parts += [f"Not measured: {rows[name]['failed']}"] if "failed" in rows[name] else []
        elif heading in kept:
            parts.append(kept[heading].strip())
    return "\n\n".join(parts) + "\n"


def _measured(results: Mapping[str, Any]) -> str:
    machine = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"Measured on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']:g} GB, {machine['system']}, "
        f"Python {machine['python']}, {packages}; rounds: {results['settings']['rounds']}."
    )


def table(heads: str, rows: Iterable[Cells]) -> str:
    """Return a Markdown table; `heads` has the names of the columns, separated by `|`."""
    lines = [heads.split("|"), *rows]
    texts = [f"| {' | '.join(str(cell).strip() for cell in line)} |" for line in lines]
    return "\n".join([texts[0], f"|{'---|' * len(lines[0])}", *texts[1:]])


def _servers(row: Mapping[str, Any], cells: Callable[[Mapping[str, Any]], Cells], columns: int) -> list[Cells]:
    """Return a line per server: its name and the cells of what was measured, or its failure."""
    servers = {"**Cluster Serving**": {"runs": row["ours"]}, **row["others"]}
    return [
        [name, *cells(measured)]
        if "runs" in measured
        else [name, f"failed: {_line(measured['failed'])}", *[""] * columns]
        for name, measured in servers.items()
    ]


def _compared(row: Mapping[str, Any]) -> str:
    layouts = {name.replace("ours", "**Cluster Serving**"): layout for name, layout in row.get("layouts", {}).items()}
    failed = {name: {"failed": text.removeprefix("failed: ")} for name, text in layouts.items() if "failed" in text}

    def cells(measured: Mapping[str, Any]) -> Cells:
        runs = measured["runs"]
        return [f"{middle(runs, 'rate'):,.1f}", _spread(measured.get("ratio")), *_quality(runs, "p50", "p99")]

    lines = _servers({**row, "others": row["others"] | failed}, cells, 4)
    heads = "|answers/s|ours to theirs (spread)|p50 ms|p99 ms|lost, wrong"
    if layouts:
        heads = heads.replace("|", "|copies x threads|", 1)
        lines = [[name, "" if name in failed else layouts.get(str(name), ""), *rest] for name, *rest in lines]
    if "cpu_share" not in row["ours"][0]:
        return table(heads, lines)
    share = middle(row["ours"], "cpu_share", "load generator")
    return f"{table(heads, lines)}\n\nThe load generator used {share:.2f} of a core of the same machine."


def _spread(ratio: Mapping[str, float] | None) -> str:
    return "" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _quality(runs: Sequence[Mapping[str, Any]], *percentiles: str) -> list[str]:
    """Return latencies, and the numbers of lost and wrong requests; empty cells where they were not measured."""
    if "latency_ms" not in runs[0]:
        return [""] * (len(percentiles) + 1)
    counts = f"{sum(run['lost'] for run in runs)}, {sum(run['wrong'] for run in runs)}"
    return [*(f"{middle(runs, 'latency_ms', p):,.2f}" for p in percentiles), counts]


def _latency(row: Mapping[str, Any]) -> str:
    runs = row["ours"]
    line = [f"{middle(runs, 'rate'):,.0f}", *_quality(runs, "p50", "p95", "p99", "max")]
    return table("answers/s|p50 ms|p95 ms|p99 ms|max ms|lost, wrong", [line])


def _scaling(row: Mapping[str, Any]) -> str:
    lines = [
        (p["slots"], p["taskmanagers"], f"{p['result']['rate']:.1f}", f"{p['of_linear']:.3f}") for p in row["points"]
    ]
    return table("task slots|TaskManagers|answers/s|of linear", lines)


def _backlog(row: Mapping[str, Any]) -> str:
    other = row["others"]["no backlog"]
    lines: list[Cells] = [
        [f"{row['waiting']:,}", f"{middle(row['ours'], 'rate'):,.0f}", ""],
        [512, f"{middle(other['runs'], 'rate'):,.0f}", _spread(other["ratio"])],
    ]
    return table("requests in flight|answers/s|ratio (spread)", lines)


def _start(row: Mapping[str, Any]) -> str:
    return table("command, s|first answer, s", [(t["command_s"], t["first_answer_s"]) for t in row["times"]])


def _repository(row: Mapping[str, Any]) -> str:
    lines = [
        [name, f"{median(each['fifty']):,.4g}", f"{median(each['one']):,.4g}", _spread(each["ratio"]), BARS[name]]
        for name, each in row["figures"].items()
    ]
    return table("|fifty models|one model|ratio (spread)|wanted", lines)


def _steady(row: Mapping[str, Any], timed: bool) -> str:
    """Return the table of a steady load with a change; `timed` if the change has a duration."""

    def cells(measured: Mapping[str, Any]) -> Cells:
        runs = measured["runs"]
        times = [("before_ms", "p50"), ("before_ms", "p99"), ("during_ms", "p99"), ("gap_ms",), ("wait_ms",)]
        *latencies, gap, wait = (f"{middle(runs, *path):,.0f}" for path in times)
        counts = [f"{sum(run['requests'] for run in runs):,}"]
        counts.append(f"{sum(run['failed'] for run in runs)}, {sum(run['wrong'] for run in runs)}")
        update = [f"{middle(runs, 'update_s'):.1f}"] if timed else []
        return [*counts, *latencies, gap, _spread(measured.get("ratio")), wait, *update]

    heads = "|requests|failed, wrong|p50 before, ms|p99 before, ms|p99 during, ms|longest gap, ms"
    heads += "|gap, ours to theirs (spread)|longest wait, ms" + ("|update, s" if timed else "")
    return table(heads, _servers(row, cells, 7 + timed))


def _pieces(row: Mapping[str, Any]) -> str:
    names = ("first_ms", "longest_first_ms", "p50_ms", "p99_ms")
    heads = "client|answers at a time|pieces|first piece, ms|longest of these|others: p50, ms|p99, ms"
    return table(
        heads,
        (
            [run["client"], run["streams"], f"{run['pieces']:,}", *(f"{run[name]:.1f}" for name in names)]
            for run in row["runs"]
        ),
    )


def _costs(row: Mapping[str, Any]) -> str:
    parts = []
    for name, label in (("requests", "requests"), ("bytes", "bytes per request"), ("clients", "clients")):
        results = {point["x"]: point["result"] for point in row[name]}
        roles = sorted({role for result in results.values() for role in result["cpu_seconds_per_1000"]})
        lines = []
        for x, result in results.items():
            cpu = [f"{result['cpu_seconds_per_1000'].get(role, 0):.3f}" for role in roles]
            p50 = result["latency_ms"]["p50"]
            lines.append([f"{x:,}", f"{result['rate']:,.0f}", f"{p50:,.2f}" if p50 else "", *cpu])
        parts.append(table("|".join([label, "answers/s", "p50 ms", *(f"{r}, CPU s per 1,000" for r in roles)]), lines))
    return "\n\n".join(parts)


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")[:160]


_TABLES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "compared": _compared,
    "latency": _latency,
    "scaling": _scaling,
    "backlog": _backlog,
    "start": _start,
    "repository": _repository,
    "update": partial(_steady, timed=True),
    "machine_dies": partial(_steady, timed=False),
    "pieces": _pieces,
    "costs": _costs,
}


def main(
    results: Annotated[Path, typer.Argument()] = Path(".bench/results.json"),
    document: Annotated[Path, typer.Argument()] = Path("docs/explanation/measurements.md"),
) -> None:
    """Write the tables of a document."""
    write(json.loads(results.read_text("utf8")), document)
    print(f"Wrote {document}")


if __name__ == "__main__":
    typer.run(main)
