"""A fuzzer of stream entries, guided by what it reaches in the code: `make fuzz`, or `make fuzz SECONDS=300`.

The first byte of an input says how the others become an entry; see `ENCODINGS`. What is found stays in the folder that
the command line names, and is where the next run begins.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

import atheris
import cv2
import numpy as np

with atheris.instrument_imports(include=["cluster_serving.client", "cluster_serving.job"]):
    from cluster_serving.protocol import tensors
    from cluster_serving.protocol.errors import ERRORS
    from cluster_serving.protocol.inputs import Image, SparseTensor
    from cluster_serving.protocol.original import arrow, image_stream
    from tests.support.fixtures.predictor import predictor, save_doubling
    from tests.support.fixtures.serving_path import answers
    from tests.support.payloads import model_zoo

VECTOR = np.array([1, 2, 3], "f4")

ENCODINGS = {
    "ours": lambda payload: {b"serde": b"arrow", b"data": payload},
    "our image": lambda payload: {b"serde": b"arrow", b"data": tensors.encode({"x": Image(payload)})},
    "original": lambda payload: {b"data": base64.b64encode(payload)},
    "JSON": lambda payload: {b"serde": b"stream", b"data": payload},
    "0.7": lambda payload: {b"image": base64.b64encode(payload)},
    "any data": lambda payload: {b"data": payload},
    "any serde": lambda payload: {b"serde": payload[:8], b"data": payload[8:]},
    "any uri": lambda payload: {b"uri": payload, b"data": b"x"},
}


def seeds() -> list[bytes]:
    """Inputs to begin with: one of each kind that is right."""
    sparse = SparseTensor(np.array([[0, 2]]), np.array([1, 2], "f4"), (3,))
    values = VECTOR, sparse, np.array(["a", "b"], object)
    found = [(0, tensors.encode({"x": value})) for value in values]
    found += [(2, base64.b64decode(arrow.encode_request({"x": value}))) for value in values]
    picture = np.arange(192, dtype="u1").reshape(8, 8, 3)
    files = [cv2.imencode(suffix, picture)[1].tobytes() for suffix in (".jpg", ".png", ".bmp", ".webp", ".tiff")]
    found += [(kind, data) for data in files for kind in (1, 4)]
    for value in ("[1,2,3]", '{"shape":[3],"data":[1],"indices":[[0]]}', '"a|b"', "1", '{"b64":"/9j/"}'):
        found.append((3, f'{{"instances":[{{"x":{value}}}]}}'.encode()))
    return [bytes([kind]) + data for kind, data in [*found, (5, b"x"), (6, b"arrow   x"), (7, b"uri")]]


def save_means(folder: Path) -> None:
    """`x` [?, 3, ?, ?] → `y` [?, 3]: of images of any size little is to be written."""
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, 3, -1, -1], np.float32)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.reduce_mean(x, ops.constant([2, 3]))})


def main() -> None:
    """Fuzz; the arguments are libFuzzer's: a folder for what is found, `-max_total_time=300` and others."""
    folder = Path(tempfile.mkdtemp())
    save_doubling(folder / "vector", 3)
    save_means(folder / "image")
    models = [predictor(folder / name, "") for name in ("vector", "image")]
    good = {b"uri": b"good", b"serde": b"arrow", b"data": tensors.encode({"x": VECTOR})}
    encodings = list(ENCODINGS.values())

    def run(data: bytes) -> None:
        if not data:
            return
        entry = {b"uri": b"bad"} | encodings[data[0] % len(encodings)](data[1:])
        for model in models:
            found = answers(model, [good, entry, good | {b"uri": b"good too"}])
            if model is models[0]:
                assert all(
                    "code" not in found[name].fields for name in ("good", "good too") if entry[b"uri"] != b"good"
                )
            for answer in found.values():
                assert answer.fields.get("code", "INTERNAL") in ERRORS
                if image_stream.is_early(image_stream.STREAM, answer.entry.serde):
                    image_stream.early_result(answer.fields)

    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            Path(argument).mkdir(parents=True, exist_ok=True)
            for number, data in enumerate(seeds()):
                (Path(argument) / f"seed-{number}").write_bytes(data)
            break
    atheris.Setup(sys.argv, run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
