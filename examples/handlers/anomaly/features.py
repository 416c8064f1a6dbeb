"""What a window of a time series looks like, in six numbers; training and serving compute the same."""

import numpy as np

WINDOW, STEP = 64, 16


def windows(count):
    """Return the first index of each window of a series of so many values; the last window ends with the series."""
    return np.arange((count - WINDOW) % STEP, count - WINDOW + 1, STEP)


def features(values):
    """Return float64 (windows, 6): level, spread, extremes, slope and roughness of each window."""
    parts = np.lib.stride_tricks.sliding_window_view(np.asarray(values, np.float64), WINDOW)[windows(len(values))]
    time = np.linspace(-1, 1, WINDOW)
    return np.column_stack(
        [
            parts.mean(axis=1),
            parts.std(axis=1),
            parts.min(axis=1),
            parts.max(axis=1),
            parts @ time / (time @ time),
            np.abs(np.diff(parts, axis=1)).mean(axis=1),
        ]
    )
