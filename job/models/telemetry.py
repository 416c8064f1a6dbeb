"""Libraries that report over the network what they are used for: here they do not."""

import os
import sys

_VARIABLES = ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY")
"""Variables of ONNX Runtime (since 1.29, at its import) and of libraries of Hugging Face, which handlers may import."""


def forbid() -> None:
    """Keep the libraries that are imported from now on from reports, unless the variables of the environment say else.

    OpenVINO has no variable: its import forks a child that reports it, and a TaskManager must not be forked. Where its
    telemetry package cannot be imported, it uses its own stub.
    """
    for name in _VARIABLES:
        os.environ.setdefault(name, "1")
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
