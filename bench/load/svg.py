"""Charts as SVG text, without a library: lines and bars, linear or logarithmic, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLORS = ("#2f6fdb", "#d9602b", "#2a9d64", "#9b4fc1", "#b8860b", "#c2355b", "#4a8f9f", "#7a7a7a")
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 36, 62

Point = tuple[float, float]


def lines(title: str, series: Mapping[str, Sequence[Point]], x_label: str, y_label: str, log: str = "") -> str:
    """Lines with a mark at each point.

    Args:
        title: Shown above, and read out by screen readers.
        series: Name → points; points that a logarithmic axis cannot show are left out.
        x_label: Of the axis, with its unit.
        y_label: Likewise.
        log: The logarithmic axes: "", "x", "y" or "xy".
    """
    kept = {
        name: [(x, y) for x, y in points if ("x" not in log or x > 0) and ("y" not in log or y > 0)]
        for name, points in series.items()
    }
    points = [point for found in kept.values() for point in found]
    if not points:
        return _page(title, [_text(_WIDTH / 2, _HEIGHT / 2, "nothing was measured", "middle")])
    x_axis = _Axis([x for x, _ in points], "x" in log, _LEFT, _WIDTH - _RIGHT, zero=False)
    y_axis = _Axis([y for _, y in points], "y" in log, _HEIGHT - _BOTTOM, _TOP, zero=True)
    parts = _frame(x_axis, y_axis, x_label, y_label)
    for index, (name, found) in enumerate(kept.items()):
        color = COLORS[index % len(COLORS)]
        path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in found)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x_axis.at(x):.1f}" cy="{y_axis.at(y):.1f}" r="3" fill="{color}">'
            f"<title>{escape(name)}: {x:g}, {y:g}</title></circle>"
            for x, y in found
        ]
    return _page(title, parts + _legend(list(kept)))


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """Horizontal bars, the first highlighted.

    Args:
        title: See `lines`.
        values: Name → length.
        unit: Of the values.
    """
    height = _TOP + 26 * max(1, len(values)) + 34
    longest = max([*values.values(), 1e-12])
    left, right = 190, _WIDTH - 90
    parts = []
    for index, (name, value) in enumerate(values.items()):
        y = _TOP + 26 * index
        width = (right - left) * max(0.0, value) / longest
        parts.append(_text(left - 8, y + 14, name, "end"))
        parts.append(
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="19" fill="{COLORS[0] if not index else COLORS[7]}"/>'
        )
        parts.append(_text(left + width + 6, y + 14, _number(value), "start"))
    parts.append(_text((left + right) / 2, height - 10, unit, "middle"))
    return _page(title, parts, height)


def histogram(title: str, borders: Sequence[float], counts: Sequence[int], x_label: str) -> str:
    """Counts between borders, on a logarithmic x axis."""
    if not counts:
        return _page(title, [_text(_WIDTH / 2, _HEIGHT / 2, "nothing was measured", "middle")])
    x_axis = _Axis(list(borders), True, _LEFT, _WIDTH - _RIGHT, zero=False)
    y_axis = _Axis([float(count) for count in counts], False, _HEIGHT - _BOTTOM, _TOP, zero=True)
    parts = _frame(x_axis, y_axis, x_label, "requests")
    for low, high, count in zip(borders, borders[1:], counts, strict=False):
        x, y = x_axis.at(low), y_axis.at(count)
        width = max(0.5, x_axis.at(high) - x - 0.5)
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT - _BOTTOM - y:.1f}" '
            f'fill="{COLORS[0]}"/>'
        )
    return _page(title, parts)


class _Axis:
    """Turns values into positions."""

    def __init__(self, values: Sequence[float], log: bool, start: float, end: float, zero: bool) -> None:
        self._log, self._start, self._end = log, start, end
        low, high = min(values), max(values)
        if log:
            low, high = 10 ** math.floor(math.log10(low) + 1e-9), 10 ** math.ceil(math.log10(high) - 1e-9)
            high = high if high > low else low * 10
        else:
            low = min(0.0, low) if zero else low
            step = _step(high - low or abs(high) or 1.0)
            low, high = math.floor(low / step) * step, math.ceil(high / step) * step
            high = high if high > low else low + step
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self._log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self._start + (self._end - self._start) * (value - low) / (high - low)

    @property
    def ticks(self) -> list[float]:
        if self._log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, math.ceil((last - first) / 8))
            return [10.0**power for power in range(first, last + 1, every)]
        step = _step(self.high - self.low)
        return [self.low + step * index for index in range(round((self.high - self.low) / step) + 1)]


def _step(span: float) -> float:
    power = 10 ** math.floor(math.log10(span / 5))
    return float(next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 6))


def _frame(x_axis: _Axis, y_axis: _Axis, x_label: str, y_label: str) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for tick in y_axis.ticks:
        y = y_axis.at(tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(_LEFT - 6, y + 4, _number(tick), "end"))
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}" class="axis"/>')
        parts.append(_text(x, bottom + 17, _number(tick), "middle"))
    parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}" class="axis"/>')
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 33, x_label, "middle"))
    parts.append(
        f'<text transform="translate(14 {(_TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    if len(names) < 2:
        return []
    parts, x = [], float(_LEFT)
    for index, name in enumerate(names):
        parts.append(
            f'<rect x="{x:.0f}" y="{_HEIGHT - 16}" width="10" height="10" fill="{COLORS[index % len(COLORS)]}"/>'
        )
        parts.append(_text(x + 14, _HEIGHT - 7, name, "start"))
        x += 34 + 6.6 * len(name)
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _number(value: float) -> str:
    if value == 0:
        return "0"
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and value % size == 0):
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _page(title: str, parts: Sequence[str], height: float = _HEIGHT) -> str:
    style = (
        "text{font:12px system-ui,sans-serif;fill:#444}.title{font-size:14px;font-weight:600}"
        ".grid{stroke:#8884}.axis{stroke:#888}@media(prefers-color-scheme:dark){text{fill:#ccc}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<text x="{_LEFT}" y="20" class="title">{escape(title)}</text>{"".join(parts)}</svg>\n'
    )
