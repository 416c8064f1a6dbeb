"""Models of which every layout has a known speed; nothing is computed."""

import pytest

from cluster_serving.launcher.jobs.layout.choice import (
    FREE,
    SIZES,
    Asked,
    Figure,
    Layout,
    best_layout,
    candidates,
    choose,
    described,
    explore,
    is_clear,
    slower,
)


class Speeds:
    """A model that takes `ms` for a record on one thread, plus `overhead` for a batch; more threads help by `gain`."""

    def __init__(self, ms, overhead=0.0, gain=1.0, cores=2):
        self.ms, self.overhead, self.gain, self.cores = ms, overhead, gain, cores
        self.measured = []

    def __call__(self, copies, threads, batch):
        self.measured.append((copies, threads, batch))
        speed = 1 + (min(threads, self.cores) - 1) * self.gain
        shared = max(1.0, copies * threads / self.cores)
        batch_ms = (self.overhead + batch * self.ms / speed) * shared
        return Figure(copies, threads, batch, 1000 * copies * batch / batch_ms, batch_ms)


def find(speeds, asked=FREE, is_over=lambda share: False):
    figures = explore(candidates(speeds.cores, asked), asked, speeds, is_over)
    return best_layout(figures, asked)


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(1, 1), (1, 2), (2, 1), (2, 2)]),
        (6, [(1, 1), (1, 6), (6, 1), (2, 6), (2, 3), (3, 2)]),
        (7, [(1, 1), (1, 7), (7, 1), (2, 7)]),
    ],
)
def test_the_cores_are_divided_between_copies_and_threads(cores, expected):
    assert candidates(cores, Asked()) == expected


def test_many_cores_have_few_candidates():
    assert len(candidates(96, Asked())) <= 7


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Asked(copies=3, threads=2), [(3, 2)]),
        (Asked(copies=2), [(2, 1), (2, 4)]),
        (Asked(threads=2), [(1, 2), (4, 2)]),
        (Asked(threads=16), [(1, 16)]),
    ],
)
def test_what_is_set_stays(asked, expected):
    assert candidates(8, asked) == expected


def test_each_gpu_has_one_or_two_copies():
    assert candidates(8, Asked(), gpus=2) == [(2, 1), (4, 1)]


def test_threads_that_help_are_taken_before_copies():
    assert find(Speeds(ms=4, gain=1.0)) == Layout(1, 2, 16)


def test_copies_are_taken_where_threads_help_little():
    layout = find(Speeds(ms=4, gain=0.3))
    assert (layout.copies, layout.threads) == (2, 1)


def test_an_engine_that_ignores_threads_gets_one_copy_per_core():
    layout = find(Speeds(ms=4, gain=0.0, cores=4))
    assert (layout.copies, layout.threads) == (4, 1)


def test_a_small_difference_is_no_reason_for_more_copies():
    assert find(Speeds(ms=4, gain=0.96)).copies == 1


def test_a_batch_takes_fifty_milliseconds_at_most():
    assert find(Speeds(ms=4, cores=1)).batch == 8


def test_a_batch_of_a_slow_model_takes_as_long_as_ten_records_at_most():
    speeds = Speeds(ms=10, overhead=90, cores=1)
    layout = find(speeds)
    assert (speeds.overhead + layout.batch * speeds.ms) <= 10 * (speeds.overhead + speeds.ms)
    assert layout.batch == 64


def test_with_latency_preferred_one_record_is_as_fast_as_possible():
    assert find(Speeds(ms=4, gain=0.3), Asked(latency=True)) == Layout(1, 2, 2)


def test_a_tiny_model_is_measured_in_one_layout_alone():
    speeds = Speeds(ms=0.005, overhead=0.05)
    assert find(speeds) == Layout(1, 1, 256)
    assert speeds.measured == [(1, 1, size) for size in SIZES]


def test_larger_batches_that_bring_nothing_are_not_measured():
    speeds = Speeds(ms=100)
    assert find(speeds).batch == 8
    assert max(batch for _, _, batch in speeds.measured) <= 2


def test_measuring_ends_when_the_time_is_over():
    speeds = Speeds(ms=4)
    assert find(speeds, is_over=lambda share: True) == Layout(1, 2, 8)
    assert speeds.measured == [(1, 1, 1), (1, 2, 1), (2, 1, 1)]


def test_of_a_slow_model_single_records_are_measured():
    speeds = Speeds(ms=2000, gain=0)
    assert find(speeds) == Layout(2, 1, 8)
    assert {batch for _, _, batch in speeds.measured} == {1}


def test_the_best_of_several_measurements_counts():
    speeds, seen = Speeds(ms=4, gain=0.3), []

    def disturbed(*arguments):
        figure = speeds(*arguments)
        seen.append(arguments)
        if seen.count(arguments) > 1:
            return figure
        return Figure(*arguments, 0.9 * figure.rate, figure.batch_ms)

    figures = explore(candidates(2, Asked()), Asked(), disturbed, lambda share: False)
    best = choose(figures, Asked())
    assert best.rate == speeds(best.copies, best.threads, best.batch).rate


@pytest.mark.parametrize("disturbed", [2, 4, 8])
def test_one_disturbed_measurement_makes_batches_no_smaller(disturbed):
    speeds, seen = Speeds(ms=13, gain=0.8), []

    def noisy(copies, threads, batch):
        figure = speeds(copies, threads, batch)
        seen.append((copies, threads, batch))
        if batch != disturbed or seen.count((copies, threads, batch)) > 1:
            return figure
        return Figure(copies, threads, batch, 0.6 * figure.rate, figure.batch_ms / 0.6)

    # Time for each size once, and for no turns.
    figures = explore(candidates(2, FREE), FREE, noisy, lambda share: share == 1.0)
    assert best_layout(figures, FREE).batch == find(Speeds(ms=13, gain=0.8)).batch == 8


def test_a_batch_that_is_slow_twice_is_not_taken():
    speeds = Speeds(ms=13, gain=0.8)

    def slow(copies, threads, batch):
        figure = speeds(copies, threads, batch)
        return Figure(copies, threads, batch, figure.rate / (1 + batch // 4), figure.batch_ms * (1 + batch // 4))

    assert best_layout(explore(candidates(2, FREE), FREE, slow, lambda share: share == 1.0), FREE).batch == 2


def recorded(*rates):
    """Figures of a network of images on two cores: single records, and the best batch of each layout."""
    alone = {1: 29.9, 2: 15.5}
    figures = []
    for (copies, threads), *measured in rates:
        figures.append(Figure(copies, threads, 1, 0.6 * max(measured), alone[threads]))
        figures.append(Figure(copies, threads, 4, max(measured), 32, min(measured)))
    return figures


@pytest.mark.parametrize(
    "rates",
    [
        [((1, 2), 122), ((2, 1), 128), ((2, 2), 126)],
        [((1, 2), 110), ((2, 1), 122), ((2, 2), 125)],
        [((1, 2), 110, 118), ((2, 1), 118, 140), ((2, 2), 119)],
    ],
)
def test_a_little_more_throughput_is_no_reason_for_slower_single_records(rates):
    """Two runs of the same network, minutes apart, had different layouts, of which one took 29.9 ms and one 15.5."""
    chosen = choose(recorded(((1, 1), 66), *rates), FREE)
    assert chosen.threads == 2
    assert chosen.rate >= 0.95 * max(max(measured) for (_, threads), *measured in rates if threads == 2)


def test_a_quarter_more_throughput_beyond_the_noise_is_one():
    fast = [((1, 1), 66), ((1, 2), 100)]
    assert choose(recorded(*fast, ((2, 1), 126)), FREE).layout == Layout(2, 1, 4)
    assert choose(recorded(*fast, ((2, 1), 126, 99)), FREE).layout == Layout(1, 2, 4)


def test_the_order_is_clear_if_the_chosen_layout_at_its_worst_is_as_good_as_the_others_at_their_best():
    assert is_clear(recorded(((1, 2), 100, 98), ((2, 2), 95, 90)), FREE)
    assert not is_clear(recorded(((1, 2), 100, 80), ((2, 2), 95, 90)), FREE)


def test_rivals_are_measured_in_turns_until_the_order_is_clear():
    """A disturbance of a second meets all of them, and figures that vary are measured more often."""
    steady, seen = Speeds(ms=4, gain=0.9), []
    find(steady)
    order = [each for each in steady.measured if each[2] == 4 and each[:2] in ((1, 2), (2, 1), (2, 2))][3:]
    assert order[:3] == order[3:6] and len({*order[:3]}) == 3

    def varying(*arguments):
        figure = Speeds(ms=4, gain=0.9)(*arguments)
        seen.append(arguments)
        factor = 1 - 0.3 * (seen.count(arguments) % 2)
        return Figure(*arguments, factor * figure.rate, figure.batch_ms)

    explore(candidates(2, FREE), FREE, varying, lambda share: False)
    assert len(seen) > len(steady.measured)


def test_time_is_left_for_the_turns():
    speeds = Speeds(ms=4)
    find(speeds, is_over=lambda share: share < 1)
    assert speeds.measured[:3] == [(1, 1, 1), (1, 2, 1), (2, 1, 1)]
    assert len(speeds.measured) > 3


def test_a_batch_that_is_set_is_measured_beside_single_records():
    speeds, asked = Speeds(ms=4), Asked(batch=24)
    assert find(speeds, asked).batch == 24
    assert {batch for _, _, batch in speeds.measured} == {1, 24}


FIGURES = [Figure(1, 1, 8, 152.4, 52), Figure(1, 2, 8, 245.0, 32), Figure(2, 1, 8, 230.6, 69), Figure(1, 2, 1, 200, 5)]


def test_a_layout_is_described_beside_the_next_best():
    line = "2 cores: 1 copy of 2 threads, batches up to 8 (245/s; 2 × 1: 231/s; 1 × 1: 152/s)"  # noqa: RUF001
    assert described(2, Layout(1, 2, 8), FIGURES) == line
    assert described(1, Layout(2, 1, 32), []) == "1 core: 2 copies of 1 thread, batches up to 32"


def test_a_slower_layout_is_said_to_be_slower():
    text = slower(Layout(1, 1, 32), FIGURES, Asked(copies=1, threads=1))
    assert text == "1 copy of 1 thread, batches up to 32 compute 152/s, and 1 copy of 2 threads, batches up to 8 245/s"
    assert not slower(Layout(1, 2, 32), FIGURES, Asked(copies=1))
    assert not slower(Layout(1, 1, 32), FIGURES, Asked())
    assert not slower(Layout(4, 4, 32), FIGURES, Asked(copies=4))
