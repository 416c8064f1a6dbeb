"""Features of a text: counts of its letters in threes, as a vector of a fixed size. The training uses them, too."""

import zlib

import numpy as np

SIZE = 512


def features(text):
    """Return float32 (SIZE,) of length 1."""
    counts = np.zeros(SIZE, np.float32)
    padded = f" {text.lower()} "
    for start in range(len(padded) - 2):
        counts[zlib.crc32(padded[start : start + 3].encode()) % SIZE] += 1
    return counts / np.linalg.norm(counts)
