"""Compare the answers of tabular models with those of the classes that trained them.

Usage: python -m tests.support.programs.tabular [--only WORDS] [xgboost] [lightgbm] [catboost] [scikit-learn]

Each case of `tests.support.payloads.trained` is trained, saved, served by a predictor, and compared; a line for each.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

from cluster_serving.protocol.errors import ServingError
from tests.support.fixtures.tabular import compare
from tests.support.payloads.trained.model import Case

LIBRARIES = {"xgboost": "xgb", "lightgbm": "lgbm", "catboost": "cat", "scikit-learn": "scikit"}


def outcome(case: Case) -> str:
    """Return what became of a case: as its class answers, refused, not trained, or other."""
    try:
        trained = case.train()
    except Exception as error:
        return f"not trained: {type(error).__name__}: {str(error).splitlines()[0][:150]}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            trained.save(Path(folder))
            compare(trained, Path(folder))
        except ServingError as error:
            return f"refused: {str(error).replace(folder, '')}"
        except AssertionError as error:
            return f"OTHER: {' '.join(str(error).split())[:300]}"
        except Exception:
            return f"FAILED: {' '.join(traceback.format_exc().splitlines()[-3:])[:400]}"
    return "equal"


def main() -> int:
    """Compare all cases, and return 1 if a library answers otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*", default=list(LIBRARIES))
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for library in arguments.libraries:
        for case in importlib.import_module(f"tests.support.payloads.trained.{LIBRARIES[library]}").cases():
            if arguments.only not in case.name:
                continue
            found = outcome(case)
            counts[found.split(":")[0]] += 1
            print(f"{library}: {case.name}: {found}", flush=True)
    print(dict(counts))
    return int(bool(counts["OTHER"] + counts["FAILED"]))


if __name__ == "__main__":
    sys.exit(main())
