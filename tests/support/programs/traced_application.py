"""Application that uses OpenTelemetry, and in its span the Python clients; prints the id of its trace.

Arguments are the port of a Redis, a job, and the client: `sync`, `asyncio`, `many`, or the example of the `docs`.
"""

import asyncio
import re
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from cluster_serving.client import AsyncInputQueue, InputQueue


async def ask(port, job):
    async with AsyncInputQueue(port=port, name=job) as queue:
        await queue.predict({"x": 1}, timeout=60)


def main():
    port, job, client = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    with trace.get_tracer("application").start_as_current_span("application") as span:
        if client == "asyncio":
            asyncio.run(ask(port, job))
        elif client == "docs":
            example = re.search(r"```python\n(.*?)```", Path("docs/how-to/traces.md").read_text("utf8"), re.DOTALL)[1]
            exec(example.replace('name="serving_stream"', f'port={port}, name="{job}"'))  # noqa: S102
        else:
            with InputQueue(port=port, name=job) as queue:
                queue.predict({"x": 1}, timeout=60) if client == "sync" else list(queue.predict_many([{"x": 1}] * 3))
        print(f"{span.get_span_context().trace_id:032x}")
    provider.shutdown()


if __name__ == "__main__":
    main()
