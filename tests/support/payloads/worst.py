"""Bodies that take the longest to read for their size, as `tests.fuzz.bodies` found them."""

import numpy as np

from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.proto import inference


def _filled(text, size):
    """Return a list of as many equal values as have about so many bytes."""
    return f"[{','.join([text] * max(1, size // (len(text) + 1)))}]"


def _named(pattern, size):
    """Return as many values with a number for a name as have about so many bytes."""
    return ",".join(pattern % index for index in range(size // (len(pattern) + 4)))


_DEEP = "[" * 31 + "1" + "]" * 31

VALUES = {
    "nested lists": lambda size: _filled(_DEEP, size),
    "rows of one number": lambda size: _filled("[1]", size),
    "rows of one text": lambda size: _filled('["a"]', size),
    "empty lists": lambda size: _filled("[]", size),
    "lists of two lengths": lambda size: f"[[1,2],{_filled('[1]', size)[1:]}",
    "integers": lambda size: _filled("1", size),
    "texts": lambda size: _filled('"a"', size),
    "a sparse tensor": lambda size: (
        f'{{"shape":[9,9],"data":{_filled("1", size // 3)},"indices":{_filled("[1,1]", size // 2)}}}'
    ),
    "a text in base64": lambda size: f'"{"A" * (size // 4 * 4)}"',
    "objects": lambda size: _filled("{}", size),
}
"""Name → function from a number of bytes to the JSON text of a value of about that size."""


def predict(size):
    """Yield name and body of requests to `/predict`, of about `size` bytes each."""
    for name, value in VALUES.items():
        yield name, f'{{"instances":[{{"x":{value(size)}}}]}}'.encode()
    yield "names", f'{{"instances":[{{{_named(chr(34) + "%d" + chr(34) + ":[1]", min(size, 600_000))}}}]}}'.encode()
    yield (
        "instances",
        f'{{"instances":[{_named(chr(123) + chr(34) + "x" + chr(34) + ":%d}", min(size, 9000))}]}}'.encode(),
    )
    yield "lists beside the instances", f'{{"a":{_filled("[]", size)},"instances":[{{"x":1}}]}}'.encode()


def infer(size):
    """Yield name, body and bytes of JSON of requests in the v2 protocol, of about `size` bytes each."""
    for name, value in VALUES.items():
        for datatype in ("FP32", "BYTES"):
            count = value(size).count(",") + 1
            tensor = f'{{"name":"x","datatype":"{datatype}","shape":[1,{count}],"data":{value(size)}}}'
            body = f'{{"inputs":[{tensor}]}}'.encode()
            yield f"{name} as {datatype}", body, len(body)
    pattern = '{"name":"%d","datatype":"FP32","shape":[1],"data":[1]}'
    body = f'{{"inputs":[{_named(pattern, min(size, 60_000))}]}}'.encode()
    yield "inputs", body, len(body)
    words = datatypes.to_raw(np.full(size // 4, b"", object), "BYTES")
    tensor = '{"name":"x","datatype":"BYTES","shape":[1,%d],"parameters":{"binary_data_size":%d}}'
    head = f'{{"inputs":[{tensor % (size // 4, len(words))}]}}'.encode()
    yield "empty texts in binary form", head + words, len(head)


def messages(size):
    """Yield name and `ModelInferRequest` of requests over gRPC, of about `size` bytes each."""
    for name, datatype, field, elements in (
        ("texts", "BYTES", "bytes_contents", [b"a"] * (size // 3)),
        ("integers", "INT32", "int_contents", [1] * size),
    ):
        message = inference.ModelInferRequest()
        tensor = message.inputs.add(name="x", datatype=datatype, shape=[1, len(elements)])
        getattr(tensor.contents, field).extend(elements)
        yield name, message
    message = inference.ModelInferRequest()
    message.inputs.add(name="x", datatype="BYTES", shape=[1, size // 4])
    message.raw_input_contents.append(datatypes.to_raw(np.full(size // 4, b"", object), "BYTES"))
    yield "empty texts in raw form", message
