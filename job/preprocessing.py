"""Preprocessing: convert the inputs of one request to the arrays that the model takes, or name the wrong input."""

from collections.abc import Mapping, Sequence
from itertools import islice

from cluster_serving.job.conversion import Conversion
from cluster_serving.job.input_kind import InputKind
from cluster_serving.job.input_rule import InputRule
from cluster_serving.job.models.base import Layout
from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array, Image, Images, Input
from cluster_serving.protocol.slots import TensorSpec, differing, filled, matched

_MAX_NAMED = 32


class Preprocessor:
    """Preprocessing for one model.

    Inputs are matched by name if the request has exactly the names of the model's inputs, and by position, as in the
    original, if all names are other ones; a request with only some of the names is an error, such as a misspelled name.
    Columns of a table are matched by name alone (`slots.matched`). Dtypes are converted only if no value changes its
    meaning: see `prepare`.

    Args:
        inputs: Inputs of the model.
        layout: Order of the axes of images, if neither the options nor the shape of the input tell.
        image: Options for images.
        already_batched: Records have a batch dimension of their own.
        most_rows: Limit of that dimension; None if `inputAlreadyBatched` allows any.
        keeps_bytes: Images that are not normalised stay uint8, and become the model's dtype in a batch.
        kinds: Kinds of inputs that are taken beside arrays.
        conversion: Converts values of other dtypes; None to refuse them.

    Attributes:
        names: Names of the inputs.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        layout: Layout,
        image: ImageOptions,
        already_batched: bool = False,
        most_rows: int | None = None,
        keeps_bytes: bool = True,
        kinds: Sequence[InputKind] = (),
        conversion: Conversion | None = None,
    ) -> None:
        self._rules = [InputRule(spec, already_batched, conversion) for spec in inputs]
        for rule in self._rules:
            rule.readers = {kind.type: kind.reader(rule, layout, image, keeps_bytes) for kind in kinds}
        self._specs = inputs
        self._in_columns = any(spec.column for spec in inputs)
        self.names = [spec.name for spec in inputs]
        self._names = frozenset(self.names)
        self._folded = {name.casefold() for name in self._names}
        self._already_batched = already_batched
        self._most_rows = most_rows

    def prepare(self, record: Mapping[str, Input]) -> list[Array]:
        """Convert one record.

        An array of the model's dtype passes unchanged; others are converted, or refused. Values beyond those that the
        engine computes are refused. The `kinds` make arrays of images and sparse tensors.

        The arrays are in the model's order, and without a batch dimension unless `already_batched`. An array may be a
        read-only view of the request.

        Raises:
            InvalidInput: If number of inputs, kind, dtype, shape or values are wrong; the message names the input.
            RequestTooLarge: If an image or a sparse tensor would take too much memory.
        """
        if (names := self._order(record)) is None:
            raise self._refused(record)
        arrays = [rule.apply(name, record[name]) for rule, name in zip(self._rules, names, strict=True)]
        if self._already_batched and len({len(array) for array in arrays}) > 1:
            sizes = ", ".join(f"{name!r} {len(array)}" for name, array in zip(names, arrays, strict=True))
            raise InvalidInput(f"the inputs of the request differ in their batch dimension: {sizes}")
        if self._already_batched and self._most_rows is not None and len(arrays[0]) > self._most_rows:
            raise InvalidInput(
                f"the request is a batch of {len(arrays[0])} records; at most {self._most_rows} are taken "
                "(maxBatchSize), or any number with inputAlreadyBatched: true"
            )
        return arrays

    def untouched(self, record: Mapping[str, Input]) -> list[str] | None:
        """Return the names of a record's arrays, in the model's order, if the model takes them unchanged.

        The result holds for all records of the same signature. It is None if each record needs `prepare`.
        """
        if self._already_batched or (names := self._order(record)) is None:
            return None
        takes = all(rule.takes(record[name]) for rule, name in zip(self._rules, names, strict=True))
        return names if takes else None

    def batch_dimensions(self, record: Mapping[str, Input]) -> set[int]:
        """Return by how many dimensions the tensors of a record exceed the model's: {1} if all of them are batches.

        Images, and inputs of an unknown rank, do not count.
        """
        if (names := self._order(record)) is None:
            return set()
        pairs = zip(self._rules, map(record.__getitem__, names), strict=True)
        return {
            len(filled(value.shape, rule.record_shape)) - rule.rank
            for rule, value in pairs
            if not isinstance(value, Image | Images) and rule.rank is not None
        }

    def _order(self, record: Mapping[str, Input]) -> list[str] | None:
        """Return the names of a record's inputs in the order of the model's inputs; None if the names do not tell it.

        Names are those of another model if some are the model's, or all but for their case, and others are not.
        """
        if record.keys() == self._names:
            return self.names
        if self._in_columns:
            names = {spec.name: name for name, spec in matched(record, self._specs).items()}
            return [names[name] for name in self.names] if names else None
        own = not self._names.isdisjoint(record) or self._folded == {name.casefold() for name in record}
        return None if len(record) != len(self._rules) or (own and len(record) > 1) else [*record]

    def _refused(self, record: Mapping[str, Input]) -> InvalidInput:
        """Return the error for a record whose names do not tell the order of its inputs."""
        told, named = differing(record, self._specs), ", ".join(map(repr, islice(record, _MAX_NAMED)))
        takes = ", ".join(map(str, self._rules))
        if len(record) != len(self._rules):
            count = f"{len(record)} input{'s' * (len(record) != 1)}"
            takes = f"{len(self._rules)}: {takes}"
            return InvalidInput(f"{told}the request has {count} ({named}); the model expects {takes}")
        rule = "" if self._in_columns else "; other names are taken, by position, only if none is the model's"
        return InvalidInput(f"{told}the request has the inputs {named}; the model expects {takes}{rule}")
