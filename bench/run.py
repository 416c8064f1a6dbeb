"""`make bench`: the project's own benchmark, in one session on one machine.

Run it in a clone. The file of results keeps every row, so an interrupted session continues where it stopped.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cluster_serving.bench.suite.peers import PEERS
from cluster_serving.bench.suite.rows import ROWS
from cluster_serving.bench.suite.session import BenchSession, BenchSettings

_console = Console(highlight=False, markup=False, soft_wrap=True)


def run(
    quick: Annotated[bool, typer.Option(help="Take seconds per row, to see that everything runs.")] = False,
    rows: Annotated[str, typer.Option(help=f"Rows to measure, separated by commas: {', '.join(ROWS)}.")] = "",
    peers: Annotated[str, typer.Option(help=f"Peers to measure, or none: {', '.join(PEERS)}.")] = "",
    folder: Annotated[Path, typer.Option(help="Folder for models, environments of the peers, and logs.")] = Path(
        ".bench"
    ),
    file: Annotated[Path | None, typer.Option(help="File of results; default: results.json in that folder.")] = None,
    again: Annotated[bool, typer.Option(help="Measure also the rows that the file has.")] = False,
) -> None:
    """Measure, and keep the results as JSON; cluster_serving.bench.report writes the documentation from them."""
    chosen = tuple(PEERS) if not peers else tuple(name for name in peers.split(",") if name != "none")
    wanted = rows.split(",") if rows else list(ROWS)
    for given, known in ((wanted, list(ROWS)), (chosen, list(PEERS))):
        if unknown := set(given) - set(known):
            raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(known)}")
    settings = BenchSettings.quick(chosen) if quick else BenchSettings(peers=chosen)
    results = file or folder / ("results-quick.json" if quick else "results.json")
    session = BenchSession(settings, folder, results, _console.print, folder / "venvs")
    for name in wanted:
        if again:
            session.rows.pop(name, None)
        session.run(name, ROWS[name].measure)
    _console.print(f"Results: {results}")
    failed = [name for name in wanted if "failed" in session.rows[name]]
    if failed:
        _console.print(f"Not measured: {', '.join(failed)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(run)
