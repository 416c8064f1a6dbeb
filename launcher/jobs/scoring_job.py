"""The batch job of Flink that scores files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets import target_of
from cluster_serving.launcher.targets.local import Local
from cluster_serving.launcher.targets.session import Session

_PROGRAM = ("-pym", "cluster_serving.embed.flink_score")


def submitted(config: Config, task: Mapping[str, Any]) -> str:
    """Return the address of the job that scores into the output of a task, which is submitted if it does not run.

    Raises:
        LaunchError: If the target is no Flink cluster, or Flink does not take the job.
    """
    target, name = target_of(config), f"score {task['output']}"
    if not isinstance(target, Local | Session):
        raise LaunchError(f"score --flink needs a Flink cluster: flink.target is {config.target}; leave out --flink")
    if config.model_encrypted:
        raise LaunchError("score --flink does not take an encrypted model; leave out --flink")
    with target.submitting():
        # Redis, which the targets check, is not needed.
        target.ensure()
        with target.flink() as flink:
            job = flink.named(name)
        if job:
            say(f"Waiting for job {job} of Flink, which an earlier command has submitted")
        else:
            with target.slots(task["processes"]):
                job = _submit(target, task, name)
    return f"{config.flink_rest_url}/jobs/{job}"


def _submit(target: Local | Session, task: Mapping[str, Any], name: str) -> str:
    loaded = target.brought(JobOptions.from_json(task["options"]))
    options = json.dumps({**task, "at": loaded.options.model.path, "flink_name": name})
    say(f"Submitting a batch job with {task['processes']} slots")
    digest = hashlib.sha256(task["output"].encode()).hexdigest()[:8]
    return target.run(_PROGRAM, name, options, loaded, f"score-{digest}")
