"""Models of a job at an address: each is fetched once for a load, which reads the same files throughout."""

import os
from dataclasses import replace

from cluster_serving.job.models.detect import is_handled
from cluster_serving.job.models.location import locate
from cluster_serving.job.options import JobOptions
from cluster_serving.job.remote.fetch import parse
from cluster_serving.job.remote.url import is_url


def fetched(options: JobOptions) -> JobOptions:
    """Return options of a model with the folder here into which it was fetched; as they are for one in a folder.

    Raises:
        EngineMissing: If a package that fetches the model is not installed.
        ModelError: If it cannot be fetched, or brings code that the options do not name.
    """
    model = options.model
    if not is_url(model.path):
        return options
    folder = locate(model.path)
    # Only the address tells that the code came from elsewhere.
    is_handled(os.listdir(folder), model)
    return replace(options, model=replace(model, path=str(folder), configured=str(parse(model.path))))
