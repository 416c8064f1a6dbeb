"""Every engine, with the models of the tests that hold for every engine: one module per family of formats."""

from tests.support.payloads.engines import bigdl, caffe, onnx, openvino, tensorflow, torch
from tests.support.payloads.engines.engine import HEIGHT, WIDTH, Engine

__all__ = ["ENGINES", "HEIGHT", "WIDTH", "Engine"]

ENGINES: dict[str, Engine] = {
    **openvino.ENGINES,
    **tensorflow.ENGINES,
    **torch.ENGINES,
    **onnx.ENGINES,
    **caffe.ENGINES,
    **bigdl.ENGINES,
}
"""Name of the engine, as `Model.engine` has it → its record."""
