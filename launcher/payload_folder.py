"""The folder in which clients on the same machine leave large inputs of a job (`client.payload_files`)."""

from __future__ import annotations

import secrets
from pathlib import Path

from cluster_serving.client.payload_files import folder_name
from cluster_serving.launcher import redis_server
from cluster_serving.launcher.config import NO_FOLDER, Config
from cluster_serving.launcher.errors import LaunchError


def ensure(config: Config) -> str:
    """Make the folder of a job, or find that of its last start: requests may be waiting with their inputs there.

    Returns:
        Its path; empty if the job has none.

    Raises:
        LaunchError: It cannot be made.
    """
    parent = _parent(config)
    if parent is None:
        return ""
    try:
        earlier = sorted(parent.glob(folder_name(config.job_name, "*")))
        # No other machine knows the token: who finds a folder of that name has found this one.
        folder = earlier[0] if earlier else parent / folder_name(config.job_name, secrets.token_hex(16))
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise LaunchError(f"payloadFolder {parent} cannot be used: {error.strerror}") from None
    return str(folder)


def _parent(config: Config) -> Path | None:
    if config.payload_folder == NO_FOLDER:
        return None
    if config.payload_folder:
        return Path(config.payload_folder)
    if not config.redis_has_failover and redis_server.is_ours(config.redis_address):
        return redis_server.folder(config.redis_address)
    return None
