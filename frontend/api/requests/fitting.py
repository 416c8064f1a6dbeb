"""Records of a request that is answered later, checked by what the slots report of the inputs.

A client that waits gets the error from the slot; one that asks later would get it with the results.
"""

from collections.abc import Mapping, Sequence

from cluster_serving.frontend.api.original import instances
from cluster_serving.frontend.api.original.instances import Records, Submission
from cluster_serving.protocol import tensors
from cluster_serving.protocol.columns import Columns, of_record
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.signature import Column, Signature, signature
from cluster_serving.protocol.slots import SlotReport, TensorSpec, differing, filled, fits, matched, type_text
from cluster_serving.protocol.tensors import Encoded


def read(body: bytes, most: int, models: Mapping[str, SlotReport | None]) -> Submission:
    """Read a body as `instances.read_submission` does, and put errors in the places of records that no slot takes."""
    asked = instances.read_submission(body, most, models)
    report = models.get(asked.model)
    # The next start of a job that does not serve may bring another model.
    if report is None or report.state != "ready" or not report.inputs:
        return asked
    return asked._replace(records=checked(asked.records, report.inputs))


def checked(records: Records, specs: Sequence[TensorSpec]) -> Records:
    """Return records with the error of each that a model with these inputs does not take.

    Whatever a slot might take passes: values of other dtypes, a batch in place of a record, images of any size.
    """
    if isinstance(records, Columns):
        error = _refused(0, of_record(signature(records.arrays), len(records)), specs)
        return [error] if error else records
    fitted = []
    for index, record in enumerate(records):
        error = _refused(index, tensors.decode(record.data)[0], specs) if isinstance(record, Encoded) else None
        fitted.append(error or record)
    return fitted


def _refused(index: int, columns: Signature, specs: Sequence[TensorSpec]) -> InvalidInput | None:
    names = [column.name for column in columns]
    expected = matched(names, specs)
    if not expected:
        named, listed = ", ".join(map(repr, names)), ", ".join(map(str, specs))
        told = f"{differing(names, specs)}the request has the inputs {named}; the model expects {listed}"
        return InvalidInput(f"instances[{index}]: {told}")
    for column in columns:
        spec = expected[column.name]
        if not _may_fit(column, spec):
            kind = "an image" if column.kind == "image" else type_text(column.dtype or "str", column.shape)
            wanted = f"{spec.name}: {type_text(spec.dtype, spec.record_shape)}"
            return InvalidInput(f"instances[{index}]: input {column.name!r} is {kind}, but the model expects {wanted}")
    return None


def _may_fit(column: Column, spec: TensorSpec) -> bool:
    expected = spec.record_shape
    if expected is None:
        return True
    if column.kind == "image":
        return len(expected) == 3 and spec.dtype != "str"
    shape = filled(column.shape, expected)
    return fits(shape, expected) or fits(shape, (None, *expected))
