"""Program of `cluster-serving-cli score --flink`: a batch job of Flink whose elements are units.

Usage: flink run -pym cluster_serving.embed.flink_score --options-file FILE [--with-jar]

The file has JSON with the fields of `Task`.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cluster_serving.embed.answers import score
from cluster_serving.embed.output import FAILURES, Outcomes, Output
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import Unit
from cluster_serving.protocol.errors import ServingError

_ENDED = ("FINISHED", "CANCELED", "FAILED")
_LOOK_S = 1.0
_LOOK_TIMEOUT_S = 30.0


def main() -> None:
    """Submit the job."""
    from pyflink.common import Configuration, Types
    from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

    parser = argparse.ArgumentParser(prog="cluster_serving.embed.flink_score", description=main.__doc__)
    parser.add_argument("--options-file", type=Path, required=True, help="JSON of Task")
    parser.add_argument("--with-jar", action="store_true", help="ship flink-python's jar, which the cluster lacks")
    given = parser.parse_args()
    task = Task.from_json(given.options_file.read_text("utf8"))
    env = StreamExecutionEnvironment.get_execution_environment()
    configuration = Configuration()
    for key, value in _settings(given.with_jar).items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(task.processes)
    output = Output(task.output)
    # A command that computes without Flink writes to no folder that this job writes to.
    with output.held():
        units = output.units(task.input)
        output.claim(task.identity)
        output.tidy()
        elements = env.from_collection(output.split(units)[1] or units[:1]).rebalance()
        elements.map(partial(_score, task), Types.STRING()).name("Score").print()
        job = env.execute_async(task.flink_name)
    print(json.dumps({"submitted": task.flink_name, "id": str(job.get_job_id())}), flush=True)


def _settings(with_jar: bool) -> dict[str, str]:
    return {
        **({} if with_jar else {"pipeline.jars": ""}),
        # In thread mode the slots of a TaskManager would share a copy of the model.
        "python.execution-mode": "process",
        "python.fn-execution.bundle.size": "1",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "10",
        "restart-strategy.fixed-delay.delay": "1 s",
    }


def _score(task: Task, unit: Unit) -> str:
    output = Output(task.output)
    # After a failure Flink computes elements again.
    if not output.has(unit):
        try:
            score(task, unit)
        except FAILURES as error:
            output.fail(unit, error)
    return unit.name


def watch(job: str, output: Output, units: Sequence[Unit]) -> Outcomes:
    """Yield the units that a job of Flink has scored, until there are no others or the job has ended.

    `job` is the address of the job in Flink's REST API.
    """
    left = {unit.name: unit for unit in units}
    while left:
        state = _state(job)
        for unit, outcome in output.outcomes([*left.values()]):
            del left[unit.name]
            yield unit, outcome
        if left and state in _ENDED:
            raise ServingError(
                f"the job of Flink is {state}, {len(left)} units are not scored; see {job}. The same command goes on"
            )
        time.sleep(_LOOK_S)


def _state(job: str) -> str:
    try:
        with urllib.request.urlopen(job, timeout=_LOOK_TIMEOUT_S) as reply:  # noqa: S310 - an address of the configuration
            return str(json.load(reply)["state"])
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        # A JobManager that was started again does not know it.
        return "FAILED"


if __name__ == "__main__":
    main()
