"""What the graphs of real files prove, beside what trials of their values found: run by hand, on any files.

    pip download --no-deps silero-vad magika rapidocr_onnxruntime
    python -m tests.support.programs.graphs *.whl model.onnx model.pt2

A file whose records share calls without its graph, and not with it, is a fault, and the program fails.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cluster_serving.job.models.batched.model import BatchedModel
from cluster_serving.job.models.detect import detect
from cluster_serving.job.models.graph.walk import Finding
from cluster_serving.job.models.loading import load_engine
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_MOST = 32


def main(names: list[str]) -> int:
    """Print a line for each file, and the sums; return 1 if a graph refutes what trials prove."""
    kinds: Counter[str] = Counter()
    wrong = 0
    for name in names:
        for title, content in _files(Path(name)):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, f"model{Path(title).suffix}").write_bytes(content)
                try:
                    kind, line = _compared(Path(folder))
                except ModelError as error:
                    kind, line = "not loaded", str(error)[:100]
            kinds[kind] += 1
            wrong += kind == "WRONG"
            print(f"{kind:11} {title}: {line}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    return min(wrong, 1)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix in (".onnx", ".pt2"):
        yield path.name, path.read_bytes()
        return
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".onnx"):
                yield f"{path.name.partition('-')[0]}/{Path(name).name}", wheel.read(name)


def _compared(folder: Path) -> tuple[str, str]:
    began = time.monotonic()
    without, _ = _proven(folder, has_graph=False)
    middle = time.monotonic()
    reason, findings = _proven(folder, has_graph=True)
    took = time.monotonic() - middle
    mixed = [finding.mixed_by for finding in findings if finding.mixed_by]
    if findings and all(finding.axis is not None for finding in findings):
        kind = "proved"
    else:
        kind = "refuted" if mixed else "unknown"
    if (not without and reason) or (kind == "proved" and "depends" in without):
        kind = "WRONG"
    words = f"{without or 'shares'} → {reason or 'shares'}" if without != reason else reason or "shares"
    return kind, f"{words}; {middle - began:.2f} → {took:.2f} s {' '.join(mixed[:1])}"


def _proven(folder: Path, *, has_graph: bool) -> tuple[str, list[Finding]]:
    options = ModelOptions(str(folder))
    engine = load_engine(detect(folder), options)
    if not has_graph:
        engine.graph = lambda: None  # type: ignore[method-assign]
    model = BatchedModel(engine, _MOST)
    try:
        model.prove()
        findings = [*model._findings.values()]
        return model.one_by_one, findings[-1] if findings else []
    finally:
        model.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
