"""The commands by name, each with the place of its function and its help in one sentence.

Programs with several commands show that help without importing the modules, which takes a second of CPU for all.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A command.

    Attributes:
        module: Module in `launcher.commands`.
        function: Function of the module; its docstring begins with `about`.
        about: Help in the list of commands.
    """

    module: str
    function: str
    about: str

    def load(self) -> Callable[..., Any]:
        """Import the module, and return the function."""
        function: Callable[..., Any] = getattr(import_module(f"{__name__}.{self.module}"), self.function)
        return function


COMMANDS = {
    "quickstart": Command(
        "preparing",
        "quickstart",
        "Serve a first model, which reads handwritten digits: make it, start all that it needs, and send it images.",
    ),
    "init": Command(
        "preparing",
        "init",
        "Write a configuration file with every key explained, and make a folder for the model.",
    ),
    "start": Command(
        "running",
        "start",
        "Start a job, and Redis and Flink before it if needed; end when it answers requests.",
    ),
    "stop": Command(
        "running",
        "stop",
        "Stop a job, or one of its models; queued requests stay in Redis.",
    ),
    "forget": Command(
        "removing",
        "forget",
        "Remove a job that does not run, with its queued requests and dead letters, from its Redis and from "
        "this machine.",
    ),
    "restart": Command(
        "changing",
        "restart",
        "Let the job serve the model and the configuration as they are now, without a gap; start it if it "
        "does not run.",
    ),
    "update": Command(
        "changing",
        "update",
        "Let a running job, or one of its models, serve model and configuration as they are now, without a gap.",
    ),
    "scale": Command(
        "changing",
        "scale",
        "Change the number of task slots of a running job, without a gap if it serves one model.",
    ),
    "promote": Command(
        "changing",
        "promote",
        "Let the canary, or the shadow, of a job serve all requests.",
    ),
    "rollback": Command(
        "changing",
        "rollback",
        "End the canary or shadow of a job; without one, serve again what it, or one of its models, served before.",
    ),
    "shutdown": Command(
        "removing",
        "shutdown",
        "Stop all jobs, and the Redis and Flink that were started here; the data of that Redis is removed.",
    ),
    "package": Command(
        "preparing",
        "package",
        "Write the archives that a job brings to a cluster: Python with its packages, and the model.",
    ),
    "list": Command(
        "observing",
        "list_",
        "List the jobs that run, and those that have stopped or failed, with their last errors.",
    ),
    "status": Command(
        "observing",
        "status",
        "Show the state, the slots, the model, the rate, the queue, failures and the last error of a job.",
    ),
    "tune": Command(
        "preparing",
        "tune",
        "Measure again how many copies, threads and records in a batch are best on this machine, and print "
        "the figures.",
    ),
    "try": Command(
        "local_run",
        "try_",
        "Run a model folder on one record, without Flink and Redis, and again whenever a file of the folder is saved.",
    ),
    "score": Command(
        "score",
        "score",
        "Compute a model over files: a row of output for each row of input. Neither Flink nor Redis are needed.",
    ),
    "metrics": Command(
        "observing",
        "metrics",
        "Print the metrics of a job in the text format of Prometheus, as the front end's /metrics has them.",
    ),
    "events": Command(
        "observing",
        "events",
        "List what has happened to a job: starts, changes, failures, and who caused them; the oldest first.",
    ),
    "logs": Command(
        "observing",
        "logs",
        "Print the lines that the TaskManagers have logged, each with its TaskManager; those of all jobs there.",
    ),
    "doctor": Command(
        "observing",
        "doctor_",
        "Check what a job needs: Python, Java, Redis, clock, Flink, model, memory, disk and ports.",
    ),
}
"""In the order of the help of `cluster-serving`."""

DEAD = Command("dead", "commands", "Requests and callbacks that were given up: list, show, queue again, remove.")
"""The group `dead`, whose function makes it."""
