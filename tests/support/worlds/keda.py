"""The number of pods that KEDA wants by a ScaledObject with triggers of the type redis-streams.

The commands are those of KEDA's `redis_streams_scaler.go`: without a `consumerGroup`, XLEN of the stream. The formula
and the pods are as its documentation says (Scaling Deployments, Scaling Modifiers).
"""

import math
import re
from pathlib import Path

import redis
import yaml

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "deploy" / "kubernetes.md"


def recipe():
    """Return the `spec` of the ScaledObject on the page about Kubernetes."""
    (text,) = re.findall(r"```yaml\n(apiVersion: keda\.sh.*?)```", PAGE.read_text("utf8"), re.DOTALL)
    return yaml.safe_load(text)["spec"]


def of_job(spec, job):
    """Return a copy of the spec for another job."""
    triggers = []
    for trigger in spec["triggers"]:
        _, colon, priority = trigger["metadata"]["stream"].partition(":")
        triggers.append(trigger | {"metadata": trigger["metadata"] | {"stream": f"{job}{colon}{priority}"}})
    return spec | {"triggers": triggers}


def length(spec, port):
    """Return the metric: the formula's sum of the lengths of all streams."""
    lengths = {}
    for trigger in spec["triggers"]:
        metadata = trigger["metadata"]
        assert trigger["type"] == "redis-streams" and "consumerGroup" not in metadata
        with redis.Redis(port=port, db=int(metadata["databaseIndex"])) as client:
            lengths[trigger["name"]] = client.execute_command("XLEN", metadata["stream"])
    return sum(lengths[name] for name in spec["advanced"]["scalingModifiers"]["formula"].split(" + "))


def pods(spec, port):
    """Return the number of pods: an AverageValue is the share of each pod."""
    modifiers = spec["advanced"]["scalingModifiers"]
    assert modifiers["metricType"] == "AverageValue"
    wanted = math.ceil(length(spec, port) / int(modifiers["target"]))
    return min(max(wanted, spec["minReplicaCount"]), spec["maxReplicaCount"])
