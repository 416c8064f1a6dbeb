"""Choice of a layout from measurements, without processes and without a clock.

A batch may take as long as ten records in turn, or 50 ms if that is more. With `prefer: latency` it may take as long as
two records. Among the layouts that compute one record as quickly as any, with such batches, the one with the most
records per second is chosen. One that takes longer for one record is chosen for a quarter more records per second
alone. Of several within 5 %, the one with the fewest copies is chosen, and then the one with the fewest threads. Its
largest batch within 20 % of its best is the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Sizes of the batches that are measured."""

ENOUGH = 20_000.0
"""Records per second of one copy with one thread that leave nothing to choose: what brings them here costs more."""

_LONGEST_BATCH_MS = 50.0
_RECORDS_IN_TURN = 10
_ALWAYS_QUICK = 8
"""Largest size of `SIZES` that is no more than `_RECORDS_IN_TURN`."""

_RECORDS_IN_TURN_FOR_LATENCY = 2
_ALIKE = 0.95
"""Ratio of two figures whose difference may be noise."""

_AS_QUICK = 1.1
"""Ratio of the times of one record of two layouts that count as equally quick."""

_CLEARLY_MORE = 1.25
"""Ratio of records per second for which one record may take longer."""

_WORTHY = 0.8
"""Ratio to the best batch of a layout down to which a larger batch is taken: reading and answering it cost less."""

_SETTLED = 0.8
"""Ratio to the best figure below which nothing is measured again."""

_SLOW_MS = 500.0
"""Time of one record for which only single records are measured."""

_IN_ANY_CASE = 3
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 8
_EXPLORED = 0.6
"""Share of the time after which no further sizes are measured: the rest is for the rivals, in turns."""

_MOST_DIVISORS = 5
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """Values of the configuration; None for one that is to be measured.

    Attributes:
        copies: `modelParallelism`.
        threads: `threadPerModel`.
        batch: `maxBatchSize`.
        latency: True for `prefer: latency`.
    """

    copies: int | None = None
    threads: int | None = None
    batch: int | None = None
    latency: bool = False

    @property
    def is_complete(self) -> bool:
        """True if nothing is to be measured."""
        return None not in (self.copies, self.threads, self.batch)


FREE = Asked()
"""A configuration that sets nothing."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Copies of a model, threads of each, and the most records of a batch."""

    copies: int
    threads: int
    batch: int

    def __str__(self) -> str:
        copies, threads = _counted(self.copies, "copy", "copies"), _counted(self.threads, "thread", "threads")
        return f"{copies} of {threads}, batches up to {self.batch}"


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured of batches of one size.

    Attributes:
        copies: Copies that computed beside each other.
        threads: Threads of each.
        batch: Records of a batch.
        rate: Records per second of all copies, the most of several measurements.
        batch_ms: Milliseconds of a batch in that measurement.
        least_rate: The fewest records per second of several measurements; 0 after one.
    """

    copies: int
    threads: int
    batch: int
    rate: float
    batch_ms: float
    least_rate: float = 0.0

    @property
    def worst(self) -> float:
        """The fewest records per second that were measured."""
        return self.least_rate or self.rate

    @property
    def layout(self) -> Layout:
        """The layout that was measured."""
        return Layout(self.copies, self.threads, self.batch)


Measure = Callable[[int, int, int], Figure]
"""Measures copies, threads and batch."""

IsOver = Callable[[float], bool]
"""Returns True if a share of the time is over."""


def candidates(cores: int, asked: Asked, gpus: int = 0) -> list[tuple[int, int]]:
    """Return the copies and threads to measure, the likeliest first.

    With GPUs, these are one or two copies for each. Else they are the ways to divide the cores, one copy of one thread,
    and two copies that share all cores: one computes while the other one prepares its batch.
    """
    if gpus:
        pairs = [(gpus, 1), (2 * gpus, 1)]
    else:
        divisors = [number for number in range(1, cores + 1) if cores % number == 0]
        if len(divisors) > _MOST_DIVISORS:
            step = (len(divisors) - 1) / (_MOST_DIVISORS - 1)
            divisors = [divisors[round(index * step)] for index in range(_MOST_DIVISORS)]
        divided = [(cores // threads, threads) for threads in reversed(divisors)]
        pairs = [(1, 1), divided[0], divided[-1], *([(2, cores)] if cores > 1 else []), *divided[1:-1]]
    if asked.copies and asked.threads:
        pairs = [(asked.copies, asked.threads)]
    elif asked.copies:
        pairs = [(asked.copies, 1), (asked.copies, max(1, cores // asked.copies))]
    elif asked.threads:
        pairs = [(1, asked.threads), (max(1, cores // asked.threads), asked.threads)]
    return list(dict.fromkeys(pairs))


def explore(pairs: Sequence[tuple[int, int]], asked: Asked, measure: Measure, is_over: IsOver) -> list[Figure]:
    """Measure batches of growing size in each layout; then rivals in turns until the order is clear, or time is over.

    A layout is left when a batch takes too long, or is no faster than the smaller one and not quick. All is left when
    one copy of one thread is fast enough. Of several measurements of the same, the best one counts: others are slower
    by what else the machine did.
    """
    best: dict[Layout, Figure] = {}

    def take(copies: int, threads: int, batch: int) -> Figure:
        figure = measure(copies, threads, batch)
        best[figure.layout] = _joined(best.get(figure.layout), figure)
        return best[figure.layout]

    sizes = SIZES if asked.batch is None else tuple(sorted({1, asked.batch}))
    for index, (copies, threads) in enumerate(pairs):
        # One thread, all threads, and a copy per core have a figure in any case: a slow model needs it most.
        if index >= _IN_ANY_CASE and is_over(_EXPLORED):
            break
        single = last = take(copies, threads, 1)
        for size in sizes[1:]:
            if is_over(_EXPLORED) or single.batch_ms > _SLOW_MS:
                break
            figure = take(copies, threads, size)
            slow = figure.batch_ms > _limit_ms(single, asked.latency)
            useless = figure.rate < last.rate / _ALIKE and figure.batch_ms > _LONGEST_BATCH_MS / 2
            last = figure
            if slow or useless:
                break
        if (copies, threads) == (1, 1) and last.rate >= ENOUGH:
            return list(best.values())
    rivals = _rivals([*best.values()], asked)
    for number in range(_MOST_ROUNDS if len(rivals) > 1 else _LEAST_ROUNDS):
        if is_over(1.0) or (number >= _LEAST_ROUNDS and is_clear([*best.values()], asked)):
            break
        for rival in rivals:
            if is_over(1.0):
                break
            take(rival.copies, rival.threads, rival.batch)
    for figure in _doubtful([*best.values()], asked):
        take(figure.copies, figure.threads, figure.batch)
    return list(best.values())


def _joined(known: Figure | None, figure: Figure) -> Figure:
    """Return the figure of a further measurement of the same."""
    if known is None:
        return figure
    return replace(max(known, figure, key=attrgetter("rate")), least_rate=min(known.worst, figure.worst))


def _rivals(figures: Sequence[Figure], asked: Asked) -> list[Figure]:
    """Return the figures to measure again: close to the best, and single records, which decide on latency.

    Of each size they are beside each other, so that a disturbance meets all layouts.
    """
    allowed = [figure for group in _by_pair(figures) for figure in _allowed(group, asked)]
    top = max(figure.rate for figure in allowed)
    close = {figure.layout for figure in allowed if figure.rate >= _SETTLED * top}
    pairs = {(layout.copies, layout.threads) for layout in close}
    single = {figure.layout for figure in figures if figure.batch == 1 and (figure.copies, figure.threads) in pairs}
    chosen = [figure for figure in figures if figure.layout in close | single]
    return sorted(chosen, key=attrgetter("batch"))


def _doubtful(figures: Sequence[Figure], asked: Asked) -> list[Figure]:
    """Return figures of batches that are always quick, and that one measurement alone has made too slow to be taken."""
    chosen = choose(figures, asked)
    if asked.batch is not None or asked.latency:
        return []
    return [
        figure
        for figure in figures
        if (figure.copies, figure.threads) == (chosen.copies, chosen.threads)
        and chosen.batch < figure.batch <= _ALWAYS_QUICK
        and not figure.least_rate
    ]


def is_clear(figures: Sequence[Figure], asked: Asked) -> bool:
    """Return True if the layout that is chosen stays so at its worst, while all others are at their best."""
    chosen = choose(figures, asked)
    pair = (chosen.copies, chosen.threads)
    doubted = [
        replace(figure, rate=figure.worst) if (figure.copies, figure.threads) == pair else figure for figure in figures
    ]
    again = choose(doubted, asked)
    return (again.copies, again.threads) == pair


def choose(figures: Sequence[Figure], asked: Asked) -> Figure:
    """Return the figure of the best layout for what is asked, of a measurement that has figures for it."""
    fitting = [figure for figure in figures if _fits(figure, asked)]
    groups = sorted(_by_pair(fitting), key=lambda group: (group[0].copies, group[0].threads))
    if asked.latency:
        fastest = min(group[0].batch_ms for group in groups)
        chosen: Sequence[Figure] = next(group for group in groups if _ALIKE * group[0].batch_ms <= fastest)
    else:
        chosen = _most_records(groups, asked)
    allowed = _allowed(chosen, asked)
    rate = max(figure.rate for figure in allowed)
    return max((figure for figure in allowed if figure.rate >= _WORTHY * rate), key=attrgetter("batch"))


def _most_records(groups: Sequence[Sequence[Figure]], asked: Asked) -> Sequence[Figure]:
    """Return the group with the most records per second, in which one record does not take longer without a need."""
    alone: dict[int, float] = {}
    for single, *_ in groups:
        # One request in flight is computed by one copy, however many there are.
        alone[single.threads] = min(single.batch_ms, alone.get(single.threads, single.batch_ms))
    best = {id(group): max(_allowed(group, asked), key=attrgetter("rate")) for group in groups}
    chosen: Sequence[Figure] | None = None
    left = list(groups)
    while left:
        limit = _AS_QUICK * min(alone[group[0].threads] for group in left)
        quick = [group for group in left if alone[group[0].threads] <= limit]
        left = [group for group in left if alone[group[0].threads] > limit]
        most = max(best[id(group)].rate for group in quick)
        found = next(group for group in quick if best[id(group)].rate >= _ALIKE * most)
        if chosen is None or _is_clearly_more(best[id(found)], best[id(chosen)]):
            chosen = found
    assert chosen is not None  # noqa: S101 - for mypy
    return chosen


def _is_clearly_more(figure: Figure, other: Figure) -> bool:
    return figure.rate >= _CLEARLY_MORE * other.rate and figure.worst > other.rate


def best_layout(figures: Sequence[Figure], asked: Asked) -> Layout:
    """Return the best layout for what is asked, of a measurement that has figures for it.

    Larger batches than the largest that was measured take no longer than their records in turn.
    """
    figure = choose(figures, asked)
    own = [each for each in figures if (each.copies, each.threads) == (figure.copies, figure.threads)]
    is_largest = figure.batch == max(each.batch for each in own)
    extends = is_largest and asked.batch is None and not asked.latency
    batch = asked.batch or (max(figure.batch, _ALWAYS_QUICK) if extends else figure.batch)
    return Layout(asked.copies or figure.copies, asked.threads or figure.threads, batch)


def has_figures(figures: Sequence[Figure], asked: Asked) -> bool:
    """Return True if there is a figure for what is asked."""
    return any(_fits(figure, asked) for figure in figures)


def described(cores: int, layout: Layout, figures: Sequence[Figure]) -> str:
    """Return a layout in words, with its figure and those of the best others, where they were measured."""
    own = [figure for figure in figures if (figure.copies, figure.threads) == (layout.copies, layout.threads)]
    text = f"{_counted(cores, 'core', 'cores')}: {layout}"
    if not own:
        return text
    rate = _rate_of(own, layout)
    others = [max(_allowed(group, FREE), key=attrgetter("rate")) for group in _by_pair(figures) if group[0] not in own]
    others = sorted(others, key=attrgetter("rate"), reverse=True)[:_MOST_SHOWN]
    parts = [f"{_shown(rate)}/s", *(f"{each.copies} × {each.threads}: {_shown(each.rate)}/s" for each in others)]  # noqa: RUF001
    return f"{text} ({'; '.join(parts)})"


def slower(layout: Layout, figures: Sequence[Figure], asked: Asked) -> str:
    """Return in words how much faster other copies and threads are than those that were set; empty if they are not."""
    own = [figure for figure in figures if (figure.copies, figure.threads) == (layout.copies, layout.threads)]
    if asked.latency or not own or not (asked.copies or asked.threads):
        return ""
    best, rate = choose(figures, FREE), _rate_of(own, layout)
    if rate >= _ALIKE * best.rate:
        return ""
    return f"{layout} compute {_shown(rate)}/s, and {best_layout(figures, FREE)} {_shown(best.rate)}/s"


def _rate_of(figures: Sequence[Figure], layout: Layout) -> float:
    """Return the most records per second of a layout, of the batches that were measured within its limit."""
    within = [figure for figure in figures if figure.batch <= layout.batch] or figures
    return max(figure.rate for figure in within)


def _fits(figure: Figure, asked: Asked) -> bool:
    return asked.copies in (None, figure.copies) and asked.threads in (None, figure.threads)


def _allowed(group: Sequence[Figure], asked: Asked) -> list[Figure]:
    """Return the figures of one layout whose batches are of the size that is asked, or else quick enough."""
    if asked.batch is not None and (exact := [figure for figure in group if figure.batch == asked.batch]):
        return exact
    limit = _limit_ms(group[0], asked.latency)
    return [figure for figure in group if figure.batch_ms <= limit] or [group[0]]


def _limit_ms(single: Figure, latency: bool) -> float:
    """Return the milliseconds that a batch may take, from the figure of single records."""
    if latency:
        return _RECORDS_IN_TURN_FOR_LATENCY * single.batch_ms
    return max(_RECORDS_IN_TURN * single.batch_ms, _LONGEST_BATCH_MS)


def _by_pair(figures: Sequence[Figure]) -> Iterator[list[Figure]]:
    """Yield the figures of each number of copies and threads, by size of the batch."""
    ordered = sorted(figures, key=attrgetter("copies", "threads", "batch"))
    for _, group in groupby(ordered, key=attrgetter("copies", "threads")):
        yield list(group)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _shown(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
