"""The folder in which clients on the same machine leave large inputs of a job (`protocol.payload_files`)."""

from __future__ import annotations

import os
import secrets
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from cluster_serving.launcher.config.model import NO_FOLDER, Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.payload_files import folder_name, is_payload
from cluster_serving.settings.addresses import Address


def ensure(config: Config, earlier: str = "") -> str:
    """Make the folder of a job, or find that of its last start: requests may be waiting with their inputs there.

    Args:
        config: The job.
        earlier: Folder of the job's last start, as its Redis has it; if the configuration names another place now, what
            waits moves there.

    Returns:
        Its path; empty if the job has none.

    Raises:
        LaunchError: It cannot be made, or there shall be none, and inputs are waiting in the earlier one.
    """
    parent = _parent(config)
    if not _is_earlier(config, Path(earlier)):
        earlier = ""
    waiting = _waiting(earlier)
    if parent is None:
        if waiting:
            raise LaunchError(
                f"{len(waiting)} inputs of waiting requests are in {earlier}, and this configuration has no folder for "
                f"them: set payloadFolder to {Path(earlier).parent} until they are answered, or remove them"
            )
        return ""
    try:
        folder = _own(parent, _pattern(config, config.redis_address))
        if earlier and not folder.samefile(earlier):
            for file in waiting:
                shutil.move(file, folder)
            shutil.rmtree(earlier, ignore_errors=True)
    except OSError as error:
        raise LaunchError(f"payloadFolder {parent} cannot be used: {error.strerror}") from None
    return str(folder)


def _own(parent: Path, pattern: str) -> Path:
    """The folder of that pattern which belongs to this user; others may have put theirs, or links, beside it."""
    for path in sorted(parent.glob(pattern)):
        if _is_ours(path):
            return path
    # No other machine knows the token: who finds a folder of that name has found this one.
    path = parent / pattern.replace("*", secrets.token_hex(16))
    path.mkdir()
    return path


def _pattern(config: Config, redis: Address) -> str:
    return folder_name(f"{config.job_name} {redis}", "*")


def _is_earlier(config: Config, path: Path) -> bool:
    # Clients may write to the hash that names it, and what is in it moves.
    patterns = [_pattern(config, address) for address in config.redis_address.spellings]
    return any(fnmatchcase(path.name, pattern) for pattern in patterns) and _is_ours(path)


def _is_ours(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.geteuid()
    except OSError:
        # On another machine, or gone with the Redis that was started here.
        return False


def _waiting(folder: str) -> list[str]:
    entries = os.scandir(folder) if folder else ()
    return [entry.path for entry in entries if is_payload(entry.name) and entry.is_file(follow_symlinks=False)]


def _parent(config: Config) -> Path | None:
    if config.payload_folder == NO_FOLDER:
        return None
    if config.payload_folder:
        return Path(config.payload_folder)
    if not config.redis_has_failover and redis_server.is_ours(config.redis_address):
        return redis_server.folder(config.redis_address)
    return None
