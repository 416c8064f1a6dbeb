"""Environments of official clients, in their versions of autumn 2026: they need others of grpcio than Flink allows."""

from tests.support.worlds.environments import node_with, python_with

PINS = {
    "clients": [
        *("tritonclient[grpc,http]==2.73.0", "kserve==0.21.0", "openai==3.57.0", "langchain-openai==1.7.4"),
        *("litellm==1.110.2", "openapi-python-client==0.29.1"),
    ],
    # It bounds the versions of others.
    "mlserver": ["mlserver==1.7.1"],
}

NODE_PINS = ["openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.43"]


def python_of(name):
    """Return the Python of an environment of clients, made once."""
    return python_with(f"clients-{name}", PINS[name])


def node():
    """Return the folder with the packages of Node, made once."""
    return node_with("clients-node", NODE_PINS)
