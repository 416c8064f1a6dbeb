"""Combinations of engines, inputs, filters and clients, for the tests and for docs/reference/compatibility.md.

To write the page: python -m tests.support.payloads.compatibility > docs/reference/compatibility.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.support.payloads import engines

ENGINES = tuple(engines.ENGINES)
TENSORS = ("float32", "int64", "uint8", "bool", "strings", "sparse", "single number", "pixels")
IMAGES = ("JPEG", "PNG", "BMP", "WebP", "TIFF", "gray PNG", "PNG with alpha", "16-bit PNG", "base64 text")
KINDS = (*TENSORS, *IMAGES)
"""What an input can be; `pixels` is an array in the model's layout, `base64 text` an image given as `{"b64": …}`."""

FILTERS = ("", "topN(2)", "pickTopN(2)")
CLIENTS = {
    "ours": "our clients",
    "Arrow": "the original's Python clients, 0.9 to 2.4",
    "early Arrow": "the original's JVM clients (Arrow framing before 0.15)",
    "JSON": "the original's HTTP front end (`serde: stream`)",
    "image_stream": "the original's clients of 0.7 and 0.8",
}
"""Each with its encoding of requests and results."""

_ORIGINALS = ("Arrow", "early Arrow", "JSON")


class Excluded(NamedTuple):
    """Combinations that do not work.

    Attributes:
        reason: The reason, for docs/reference/compatibility.md.
        answer: The answer to such a request, as a regular expression; "" if there is no such request or model.
        engines: The engines; empty for all.
        kinds: The inputs; empty for all.
        filters: The filters; empty for all.
        clients: The clients; empty for all.
    """

    reason: str
    answer: str = ""
    engines: Sequence[str] = ()
    kinds: Sequence[str] = ()
    filters: Sequence[str] = ()
    clients: Sequence[str] = ()

    def has(self, engine: str, kind: str, text: str, client: str) -> bool:
        """Return True if a combination is one of these."""
        asked = ((engine, self.engines), (kind, self.kinds), (text, self.filters), (client, self.clients))
        return all(not excluded or value in excluded for value, excluded in asked)


EXCLUDED = (
    Excluded(
        "the engine computes float32 only; whole numbers and bool are converted, so a model cannot ask for them",
        engines=("Caffe", "BigDL"),
        kinds=("int64", "uint8", "bool", "strings"),
    ),
    Excluded(
        "the engine has no tensors of strings", engines=("OpenVINO", "TorchScript", "torch.export"), kinds=("strings",)
    ),
    Excluded(
        "the formats of the engine have a dimension beside the batch",
        engines=("Caffe", "BigDL"),
        kinds=("single number",),
    ),
    Excluded(
        "clients of 0.7 and 0.8 send image files, nothing else",
        kinds=TENSORS,
        clients=("image_stream",),
    ),
    Excluded(
        "a single number is neither a vector nor a table",
        answer="does not fit the model",
        kinds=("single number",),
        filters=FILTERS[1:],
    ),
    Excluded(
        "the original's Arrow has no shape of strings: the model has to take a vector of them",
        answer=r"input 'x' is str\[3\], but the model expects x: str\[3, 1\]",
        kinds=("strings",),
        filters=("pickTopN(2)",),
        clients=("Arrow", "early Arrow"),
    ),
    Excluded(
        "`topN` ranks numbers",
        answer="topN needs one vector of numbers",
        engines=("TensorFlow", "TensorFlow frozen graph", "TensorFlow checkpoint", "ONNX Runtime"),
        kinds=("strings",),
        filters=("topN(2)",),
    ),
    Excluded(
        "the original's results hold numbers: a model that gives strings needs our client",
        answer="has no place in the original's result encoding",
        engines=("TensorFlow", "TensorFlow frozen graph", "TensorFlow checkpoint", "ONNX Runtime"),
        kinds=("strings",),
        clients=_ORIGINALS,
    ),
)
"""The combinations that do not work; all others are tested to work."""


def excluded(engine: str, kind: str, text: str, client: str) -> Excluded | None:
    """Return the entry of a combination that does not work; None if it works."""
    return next((row for row in EXCLUDED if row.has(engine, kind, text, client)), None)


def document() -> str:
    """Return the text of docs/reference/compatibility.md."""
    notes: list[str] = []

    def cell(combinations: Sequence[tuple[str, str, str, str]]) -> str:
        rows = [excluded(*combination) for combination in combinations]
        reasons = list(dict.fromkeys(row.reason for row in rows if row))
        notes.extend(reason for reason in reasons if reason not in notes)
        numbers = ", ".join(str(notes.index(reason) + 1) for reason in reasons)
        return f"{'no' if all(rows) else 'yes'}{f' ({numbers})' if numbers else ''}"

    def table(corner: str, columns: Sequence[str], rows: dict[str, list[str]]) -> str:
        lines = [f"| {corner} | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]
        return "\n".join(lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()])

    kinds = [*TENSORS, "image files"]

    def members(kind: str) -> Sequence[str]:
        return IMAGES if kind == "image files" else (kind,)

    by_engine = {
        engine: [cell([(engine, one, "", "ours") for one in members(kind)]) for kind in kinds] for engine in ENGINES
    }
    able = {kind: [e for e in ENGINES if not excluded(e, members(kind)[0], "", "ours")] for kind in kinds}
    by_client = {
        meaning: [cell([(e, one, "", client) for e in able[kind] for one in members(kind)]) for kind in kinds]
        for client, meaning in CLIENTS.items()
    }
    by_filter = {
        f"`{text}`": [cell([(e, one, text, "ours") for e in able[kind] for one in members(kind)]) for kind in kinds]
        for text in FILTERS[1:]
    }
    tables = [table("engine", kinds, by_engine), table("client", kinds, by_client), table("filter", kinds, by_filter)]
    numbered = "\n".join(f"{number}. {note[0].upper()}{note[1:]}." for number, note in enumerate(notes, 1))
    return _DOCUMENT.format(images=", ".join(IMAGES), tables=tables, notes=numbered)


_DOCUMENT = """\
# What goes together

Every engine is tested with every input, filter and client.
The answer must be that of the engine itself for the same record.
This page is made from `tests/support/payloads/compatibility.py`, which lists the combinations that do not work.
A number in brackets refers to a reason at the end.
*yes* with a number means that the reason applies to some of the engines.

Image files are: {images}.
*pixels* are an image as an array.
Gray images get three equal channels, transparency is dropped, and 16 bits become 8.
With `imageColor: GRAY` every image has a single channel.

## Engine and input

{tables[0]}

A *yes* is for a model whose input is of that type.
Numbers of another type are converted if they are not too large for it ([dtypes](models.md)).

## Client and input

{tables[1]}

## Filter and input

A filter works on the outputs, so their shape matters.
`topN` takes one vector of numbers per record, `pickTopN` a table.
The table has *yes* where the filter works with a model of fitting outputs.

{tables[2]}

## Reasons

{notes}
"""

if __name__ == "__main__":
    print(document(), end="")
