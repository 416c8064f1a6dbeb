"""Encoding of the outputs of a handler."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from cluster_serving.job.encoding import Columns, Encoding
from cluster_serving.job.handlers.failure import HandlerFailed
from cluster_serving.job.models.base import cause
from cluster_serving.job.postprocessing.outputs import pack
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import mark_json

Packed = tuple[dict[str, Array], list[str]]
"""Outputs as `pack` returns them: arrays, and the names of those that are JSON documents."""


class HandledEncoding(Encoding):
    """Encoding of the outputs of handlers: the record of outputs, or a list of those of the rows of a batch."""

    def fields(self, native: bool, outputs: Any) -> Mapping[str, str | bytes]:
        """See `Encoding.fields`."""
        try:
            arrays, documents = pack(outputs) if type(outputs) is dict else _stacked([*map(pack, outputs)])
            fields = self._encode(native, [*arrays], [*arrays.values()])
            return mark_json(fields, documents) if documents else fields
        except Exception as error:
            # Outputs of an unexpected type concern this record alone.
            raise HandlerFailed(f"the outputs cannot be sent: {cause(error)}") from error

    def named(self, outputs: Any) -> Mapping[str, Any]:
        """See `Encoding.named`; the rows of a batch have no names."""
        return outputs if type(outputs) is dict else {}

    def columns(self, outputs: Any) -> Columns | None:
        """See `Encoding.columns`."""
        if self.is_plain and type(outputs) is dict:
            # `fields` tells what cannot be sent.
            with suppress(Exception):
                arrays, documents = pack(outputs)
                if not documents:
                    return [*arrays], [*arrays.values()]
        return None


def _stacked(rows: Sequence[Packed]) -> Packed:
    """Return the outputs of a batch, from those of its rows; documents become a list of them.

    Raises:
        ValueError: If the rows differ in their outputs.
    """
    first, documents = rows[0]
    for row, (arrays, kinds) in enumerate(rows):
        if arrays.keys() != first.keys() or kinds != documents:
            raise ValueError(f"row 0 of the batch has the outputs {', '.join(first)}, row {row} {', '.join(arrays)}")
    stacked = {}
    for name in first:
        values = [arrays[name] for arrays, _ in rows]
        listed = f"[{','.join(value.item() for value in values)}]" if name in documents else None
        stacked[name] = np.stack(values) if listed is None else np.asarray(listed, object)
    return stacked, documents
