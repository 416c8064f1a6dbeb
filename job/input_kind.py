"""A kind of inputs beside arrays, such as image files: what is needed to make arrays of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from cluster_serving.job.input_rule import InputRule
from cluster_serving.job.models.base import Layout, TensorSpec
from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.inputs import Array


class InputKind(ABC):
    """A kind of inputs, whose values have one type of `protocol.inputs`; `job.ways` lists all.

    Attributes:
        type: Type of the values.
    """

    type: type

    @abstractmethod
    def reader(
        self, rule: InputRule, layout: Layout, image: ImageOptions, keeps_bytes: bool
    ) -> Callable[[str, Any], Array]:
        """Return what makes the array for one input of a model, of name and value in a record.

        It raises `InvalidInput`, with the name, for a value that the model does not take there. See `Preprocessor` for
        the arguments.
        """

    def prepare(self, image: ImageOptions) -> None:  # noqa: B027
        """Import what the options need, before a model is loaded.

        Raises:
            EngineMissing: If a package is not installed.
        """

    def check(self, inputs: Sequence[TensorSpec], layout: Layout, image: ImageOptions) -> None:  # noqa: B027
        """Refuse options that fit no input of a loaded model.

        Raises:
            ModelError: If there is such an option.
        """

    def spec(self, name: str, image: ImageOptions) -> TensorSpec:
        """Return the input that a model which takes anything has for such a value."""
        return TensorSpec(name, "", None)

    def is_slow(self, value: Any) -> bool:
        """Return True if a value takes longer to read than to hand over to another thread and back (0.2 ms)."""
        return False
