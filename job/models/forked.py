"""Engines that a fork has cut off: their pools of threads are in the parent alone, and a call would wait for ever.

LightGBM, XGBoost, histograms of scikit-learn and PyTorch compute with OpenMP. Its pool exists after the first call with
several threads; of XGBoost, after a load. `os.fork` copies the thread that calls it alone.
"""

import os

from cluster_serving.protocol.errors import ModelError

_used: set[str] = set()
_lost: set[str] = set()


def use(engine: str) -> None:
    """Note that an engine of this process has a pool of threads."""
    _used.add(engine)


def check(engine: str) -> None:
    """Refuse an engine whose pool of threads was left in the parent.

    Raises:
        ModelError: If the process was forked after the engine had computed with several threads.
    """
    if engine in _lost:
        raise ModelError(
            f"this process was forked after {engine} had computed with several threads, which a fork does not copy: a "
            "call would wait for ever; start the process with multiprocessing.get_context('spawn'), or load no model "
            "before the fork"
        )


os.register_at_fork(after_in_child=lambda: _lost.update(_used))
