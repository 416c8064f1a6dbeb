"""Survey of a model in a store: what can be told of it without fetching it.

Usage: python -m cluster_serving.job.survey

Standard input has the address. The process prints JSON: the `engine` of the model, or an empty text if the model is an
archive; its `size` in bytes, or null; or the `error`, with `certain` if the TaskManagers would meet the same error.
"""

import json
import sys

from cluster_serving.job.models.detect import check_engine, identify
from cluster_serving.job.remote.fetch import parse
from cluster_serving.job.remote.store import Denied, Store, Unreachable
from cluster_serving.protocol.errors import ModelError


def survey(address: str) -> dict[str, object]:
    """Return engine and size of the model at an address, and the extra that installs the engine.

    Raises:
        ModelError: If the store does not answer, or does not hold exactly one model whose engine is installed.
    """
    url = parse(address)
    files = Store(url).files()
    sizes = [file.size for file in files.values()]
    size = None if None in sizes else sum(size or 0 for size in sizes)
    if url.archive:
        return {"engine": "", "extra": "", "size": size}
    names = {top + separator for top, separator, _ in (name.partition("/") for name in files)}
    format = identify(names, str(url)).format
    check_engine(format, address)
    return {"engine": format.engine, "extra": format.extra, "size": size}


def main() -> None:
    """Print what is known of the model."""
    try:
        result = survey(sys.stdin.read())
    except ModelError as error:
        result = {"error": str(error), "certain": not isinstance(error, Unreachable | Denied)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
