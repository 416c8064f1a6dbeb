"""Cluster Serving: a trained model in a folder, served by a PyFlink job, or embedded in a program (`Predictor`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster_serving.embed.predictor import Predictor as Predictor

__all__ = ["Predictor"]


def __getattr__(name: str) -> Any:
    """Load `Predictor` at its first use: the light client has none of its packages."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module("cluster_serving.embed.predictor"), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs {error.name}, which is not installed: run pip install 'cluster-serving[embed]', and an "
            "engine such as 'cluster-serving[onnx]'"
        ) from error
