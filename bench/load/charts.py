"""Charts as SVG text, drawn by matplotlib: lines, bars and histograms, readable on light and dark pages."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

Point = tuple[float, float]

_COLORS = ("#2f6fdb", "#d9602b", "#2a9d64", "#9b4fc1", "#b8860b", "#c2355b", "#4a8f9f", "#7a7a7a")
_WIDTH_INCHES, _HEIGHT_INCHES = 7.5, 3.2
# A grey of medium brightness is readable on white and on black. The salt makes the ids in the file reproducible.
_GREY = "#808080"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cluster-serving",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": _GREY,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "grid.alpha": 0.3,
}


def lines(title: str, series: Mapping[str, Sequence[Point]], x_label: str, y_label: str, log: str = "") -> str:
    """Draw lines by name, with a mark at each point.

    `log` names the logarithmic axes: "", "x", "y" or "xy". Points that these cannot show are left out.
    """
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(title, x_label, y_label)
        for color, (name, points) in zip(_COLORS * (len(series) // len(_COLORS) + 1), series.items(), strict=False):
            shown = [(x, y) for x, y in points if ("x" not in log or x > 0) and ("y" not in log or y > 0)]
            if shown:
                axes.plot(*zip(*shown, strict=True), "o-", color=color, label=name)
        if not axes.lines:
            return _nothing(title)
        _scale(axes.xaxis, "x" in log)
        _scale(axes.yaxis, "y" in log)
        if "y" not in log:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if len(series) > 1:
            axes.legend(frameon=False)
        axes.grid(axis="y")
        return _svg(figure, title)


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """Draw horizontal bars by name, the first one highlighted."""
    if not values:
        return _nothing(title)
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(title, unit, "", height=0.9 + 0.28 * len(values))
        colors = [_COLORS[0], *[_COLORS[-1]] * (len(values) - 1)]
        drawn = axes.barh(list(values), [max(0.0, value) for value in values.values()], color=colors)
        axes.bar_label(drawn, [f"{value:,.4g}" for value in values.values()], padding=4)
        axes.margins(x=0.12)
        axes.invert_yaxis()
        return _svg(figure, title)


def histogram(title: str, borders: Sequence[float], counts: Sequence[int], x_label: str) -> str:
    """Draw the counts between borders, on a logarithmic x axis."""
    if not counts:
        return _nothing(title)
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(title, x_label, "requests")
        axes.stairs(counts, borders, fill=True, color=_COLORS[0])
        _scale(axes.xaxis, True)
        _scale(axes.yaxis, False)
        axes.grid(axis="y")
        return _svg(figure, title)


def _axes(title: str, x_label: str, y_label: str, height: float = _HEIGHT_INCHES) -> tuple[Figure, Any]:
    figure = Figure((_WIDTH_INCHES, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontweight="bold", parse_math=False)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return figure, axes


def _scale(axis: Any, logarithmic: bool) -> None:
    """Set the scale of an axis with values; its numbers are written like 0.1, 20, 1k or 5M."""
    if logarithmic:
        getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
        axis.set_minor_formatter(NullFormatter())
    thousands = EngFormatter(sep="")
    axis.set_major_formatter(lambda value, _: f"{value:g}" if abs(value) < 1000 else thousands(value))


def _nothing(title: str) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure((_WIDTH_INCHES, 1))
        figure.text(0.5, 0.4, f"{title}: nothing was measured", ha="center", parse_math=False)
        return _svg(figure, title)


def _svg(figure: Figure, title: str) -> str:
    """Return the figure as an `<svg>` element without prolog, to be put into HTML or a file."""
    output = io.StringIO()
    metadata = {"Title": title, "Date": None, "Creator": None, "Format": None, "Type": None}
    FigureCanvasSVG(figure).print_svg(output, metadata=metadata)  # type: ignore[no-untyped-call]
    text = output.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text[text.index("<svg") :].splitlines()) + "\n"
