"""What engines of other distributions and programs import; docs/how-to/convert-models.md has an example.

A name is looked up when it is first used, as the interface of models (`base`) needs no other module.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster_serving.job.models.base import Layout, Model, TensorSpec, dummy_inputs
    from cluster_serving.job.models.detect import HANDLER, ModelFiles, check
    from cluster_serving.job.models.formats import Format
    from cluster_serving.job.models.loading import load_model
    from cluster_serving.job.options import ModelOptions

__all__ = [
    "HANDLER",
    "Format",
    "Layout",
    "Model",
    "ModelFiles",
    "ModelOptions",
    "TensorSpec",
    "check",
    "dummy_inputs",
    "load_model",
]

_MODULES = {
    "base": ("Layout", "Model", "TensorSpec", "dummy_inputs"),
    "detect": ("HANDLER", "ModelFiles", "check"),
    "formats": ("Format",),
    "loading": ("load_model",),
}


def __getattr__(name: str) -> Any:
    """Import a name from its module."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    if name == "ModelOptions":
        return import_module("cluster_serving.job.options").ModelOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
