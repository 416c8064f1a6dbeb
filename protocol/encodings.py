"""The encodings of requests and results beside our own (`tensors`): one is added here, and nowhere else.

They are those of the original's clients. The field `serde` of an entry names the encoding of its inputs; the entries of
0.7 and 0.8 lack it, and get `IMAGE` from `with_serde`. A result has the encoding of `arrow`, and the clients of 0.7 and
0.8 get it as `early_result` writes it.
"""

from collections.abc import Callable, Mapping

from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.original import arrow, image_stream, json
from cluster_serving.protocol.original.arrow import ERROR_VALUE, decode_result, encode_result
from cluster_serving.protocol.original.image_stream import IMAGE, early_result, is_early, is_early_job, with_serde
from cluster_serving.protocol.original.texts import ranking_json, ranking_text, rows_text

__all__ = [
    "DECODERS",
    "ERROR_VALUE",
    "IMAGE",
    "decode_result",
    "early_result",
    "encode_result",
    "is_early",
    "is_early_job",
    "ranking_json",
    "ranking_text",
    "rows_text",
    "with_serde",
]

DECODERS: Mapping[bytes, Callable[[bytes], dict[str, Input]]] = {
    b"": arrow.decode_request,
    b"stream": json.decode_request,
    IMAGE: image_stream.decode_request,
}
"""By the field `serde` of a request: what decodes its inputs."""
