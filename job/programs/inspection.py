"""Survey of what is in a store: what can be told of a model, or of several, without fetching them.

Usage: python -m cluster_serving.job.programs.inspection

Standard input has JSON: the `address`; the `handler` of the options; and `picture`, an empty folder, or an empty text.
The process prints JSON: the `engine` of the model, or an empty text for an archive; its `size` in bytes, or null;
`text`, true if it may have a tokenizer; or the `error`, with `certain` if the TaskManagers would meet the same
error. If the address holds subfolders alone, `several` is true, and the folder gets their picture (`programs.picture`).
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from cluster_serving.job.models.detect import HANDLER, check_engine, holds_several, identify, is_handled
from cluster_serving.job.models.text import tokenizer
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.programs import picture
from cluster_serving.job.remote.fetch import fetch, parse
from cluster_serving.job.remote.store import Denied, RemoteFile, Store, Unreachable, digest_of
from cluster_serving.protocol.errors import ModelError

_LARGEST_ARCHIVE = 1 << 30
"""Bytes of an archive that is fetched to see what it holds. The cache keeps it, also for slots of this machine."""


def inspect(address: str, handler: str = "", shown_in: str = "") -> dict[str, object]:
    """Return engine and size of the model at an address, the requirement that installs the engine, and if it has texts.

    Of several models the size alone is known; `shown_in` is an empty folder that gets their picture.

    Raises:
        ModelError: If the store does not answer, or holds no model, or one whose engine is not installed.
    """
    url = parse(address)
    store = Store(url)
    files = store.files()
    sizes = [file.size for file in files.values()]
    size = None if None in sizes else sum(size or 0 for size in sizes)
    copy: Callable[[RemoteFile, Path], object] = store.download
    if url.archive:
        is_looked_into = shown_in and size is not None and size <= _LARGEST_ARCHIVE
        files, copy = _unpacked(address) if is_looked_into else {}, _copy
    names = {top + separator for top, separator, _ in (name.partition("/") for name in files)}
    unknown: dict[str, object] = {"engine": "", "requirement": "", "size": size, "text": True}
    if shown_in and holds_several(names) and picture.write(files, copy, Path(shown_in)):
        return unknown | {"several": True}
    if url.archive:
        return unknown
    handled = is_handled(names, ModelOptions(address, handler=handler))
    format = HANDLER if handled else identify(names, str(url)).format
    check_engine(format, address)
    text = tokenizer.FILE in names
    return {"engine": format.engine, "requirement": format.requirement, "size": size, "text": text}


def _unpacked(address: str) -> dict[str, RemoteFile]:
    """Return the files of an archive, by path relative to its folder, as a store describes them."""
    try:
        folder = fetch(address, timeout=0)
    except ModelError as error:
        # Such as a full disk: the TaskManagers have others.
        raise Unreachable(str(error)) from None
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: RemoteFile(str(path), path.stat().st_size, digest_of(path, "sha256").hex(), "")
        for name, path in files.items()
    }


def _copy(file: RemoteFile, target: Path) -> None:
    shutil.copyfile(file.path, target)


def main() -> None:
    """Print what is known of the model."""
    try:
        given = json.load(sys.stdin)
        result = inspect(given["address"], given["handler"], given["picture"])
    except ModelError as error:
        result = {"error": str(error), "certain": not isinstance(error, Unreachable | Denied)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
