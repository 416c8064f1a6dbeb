"""Messages of the gRPC services; `make proto` generates the modules from the `.proto` files beside them."""

from importlib import import_module
from typing import Any

# Generated code makes its classes when it is imported, so a type checker sees none.
inference: Any = import_module("cluster_serving.frontend.proto.inference_pb2")
original: Any = import_module("cluster_serving.frontend.proto.original_pb2")
