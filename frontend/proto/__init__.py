"""Messages of the gRPC services; `make proto` generates the modules from the `.proto` files beside them."""

from importlib import import_module
from typing import Any

from google.protobuf.message import DecodeError

from cluster_serving.protocol.errors import InvalidInput

# Generated code makes its classes when it is imported, so a type checker sees none.
inference: Any = import_module("cluster_serving.frontend.proto.inference_pb2")
original: Any = import_module("cluster_serving.frontend.proto.original_pb2")


def parse(message_type: Any, text: bytes) -> Any:
    """Parse a message. Bytes that are not a message of this type raise `InvalidInput`."""
    try:
        return message_type.FromString(text)
    except DecodeError:
        raise InvalidInput(f"the message is not a {message_type.DESCRIPTOR.name}") from None
