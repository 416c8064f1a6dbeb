"""Payloads as JVM clients write them."""

import base64

import pyarrow as pa


def reframed(data: str | bytes) -> bytes:
    """The same payload in the Arrow framing before 0.15."""
    with pa.ipc.open_stream(base64.b64decode(data)) as reader:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, reader.schema, options=pa.ipc.IpcWriteOptions(use_legacy_format=True)) as writer:
            for batch in reader:
                writer.write_batch(batch)
    return base64.b64encode(sink.getvalue())
