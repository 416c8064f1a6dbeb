"""The tracer of a process, by the standard environment variables of OpenTelemetry, of which nothing else is loaded."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster_serving.protocol.traces.otel import Tracer

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@cache
def tracer(service: str) -> Tracer | None:
    """Return the tracer of this process; None if the environment wants no traces, or their packages are missing.

    `service` is the name of the process in traces, unless the environment has one.
    """
    name = exporter()
    if not name:
        return None
    try:
        from cluster_serving.protocol.traces.otel import Tracer

        (found,) = entry_points(group="opentelemetry_traces_exporter", name=name)
        return Tracer(service, found.load()())
    except (ImportError, ValueError) as error:
        log.error(
            "there are no traces: the environment asks for them (OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT), "
            "but the exporter %s cannot be loaded (%s); run pip install 'cluster-serving[traces]'",
            *(name, error),
        )
        return None


def exporter() -> str:
    """Return the name of the exporter that the environment wants, as its package has it; empty for none."""
    given = os.environ.get("OTEL_TRACES_EXPORTER", "").strip()
    wanted = given or ("otlp" if any(map(os.environ.get, _ENDPOINTS)) else "none")
    if wanted == "none" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), "http/protobuf")
    otlp = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    return otlp if wanted == "otlp" else wanted
