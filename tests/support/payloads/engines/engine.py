"""The record of an engine in the tests that hold for every engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Shape = tuple[int, ...]

NUMBERS = ("float32", "int64", "uint8", "bool")
ALL = (*NUMBERS, "str")
HEIGHT, WIDTH = 1, 24
"""Size of the images: one row, so that the answer is a vector and a table, and every filter fits."""


@dataclass(frozen=True)
class Engine:
    """An engine, with functions that write models into a folder.

    Attributes:
        model_file: Pattern of the file whose damage is noticed.
        save_digits: Write the digits network: `x` float32 [?, 64] → `probabilities` float32 [?, 10].
        save_twice: Write, for a folder, a dtype and a shape, `x` [?, *shape] → `y`, `x` concatenated with itself.
        dtypes: The dtypes that `save_twice` takes.
        save_row_means: Write the mean of each row of pixels: `x` [?, 1, 24, 3] → `y` [?, 1, 3], or `x` [?, 3, 1, 24] →
            `y` [?, 3, 1] if images are CHW.
        call: Return the output for a folder, a batch for `x` and the output's name, as the engine's own documentation
            shows.
        save_doubled: Write `x` float32 [?] → `y` [?], twice `x`; None if the formats have a dimension beside the batch.
        save_words: Write, for a folder and a shape, words like "word 0 ü", `x` str [?, *shape] → `y`. None if
            `save_twice` takes strings, or no model does.
    """

    model_file: str
    save_digits: Callable[[Path], None]
    save_twice: Callable[[Path, str, Shape], None]
    dtypes: tuple[str, ...]
    save_row_means: Callable[[Path], None]
    call: Callable[[Path, np.ndarray, str], Any]
    save_doubled: Callable[[Path], None] | None = None
    save_words: Callable[[Path, Shape], None] | None = None
