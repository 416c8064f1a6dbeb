"""Rehearsal of a start: loads the model of a job as a slot does, in a process of its own.

Usage: python -m cluster_serving.job.programs.rehearsal

Standard input has JSON: the options of the job, and secret and salt of an encrypted model. The process prints why the
model cannot be served, and exits with 1 then.
"""

import json
import os
import sys

from cluster_serving.job.options import JobOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.protocol.errors import ServingError


def main() -> None:
    """Load the model, and compute a batch of zeros where its inputs are known."""
    given = json.load(sys.stdin)
    # Engines print, too.
    result = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        Predictor.of(JobOptions.from_json(given["options"]), tuple(given["secret"])).close()
    except ServingError as error:
        with result:
            result.write(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
