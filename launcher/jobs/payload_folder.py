"""The folder for large inputs of a job from clients on the same machine; see `protocol.payloads.files`."""

import os
import secrets
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from cluster_serving.launcher.config.model import NO_FOLDER, Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.payloads.names import folder_name, is_payload
from cluster_serving.settings.addresses import Address


def ensure(config: Config, earlier: str = "") -> str:
    """Return the folder of a job: that of its last start, where inputs may be waiting, or a new one; empty for none.

    `earlier` is the folder of the job's last start, as its Redis has it. If the configuration names another place now,
    the waiting inputs move there.

    Raises:
        LaunchError: If the folder cannot be made, or the configuration has none although inputs are waiting.
    """
    if not _is_earlier(config, Path(earlier)):
        earlier = ""
    parent = _parent(config)
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


def remove(config: Config, folder: str) -> None:
    """Remove the folder of a job that is forgotten; one that is not the job's stays."""
    if _is_earlier(config, Path(folder)):
        shutil.rmtree(folder, ignore_errors=True)


def stays(config: Config, earlier: str) -> bool:
    """Return True if `ensure` would return the folder of the job's last start."""
    parent = _parent(config)
    return not earlier if parent is None else bool(earlier) and Path(earlier).parent == parent


def _own(parent: Path, pattern: str) -> Path:
    """Return the folder of that pattern which is this user's; other users may have put folders and links beside it."""
    for path in sorted(parent.glob(pattern)):
        if _is_ours(path):
            return path
    # The token is known on this machine alone, so that a client that finds the name has found this folder.
    path = parent / pattern.replace("*", secrets.token_hex(16))
    path.mkdir()
    return path


def _pattern(config: Config, redis: Address) -> str:
    return folder_name(f"{config.job_name} {redis}", "*")


def _is_earlier(config: Config, path: Path) -> bool:
    # The path comes from Redis, where clients can write, and the files of the folder are moved.
    patterns = [_pattern(config, address) for address in config.redis_address.spellings]
    return any(fnmatchcase(path.name, pattern) for pattern in patterns) and _is_ours(path)


def _is_ours(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.is_dir() and path.stat().st_uid == os.geteuid()
    except OSError:
        # The path is of another machine, or the folder was removed with the Redis that was started here.
        return False


def _waiting(folder: str) -> list[str]:
    entries = os.scandir(folder) if folder else ()
    return [entry.path for entry in entries if is_payload(entry.name) and entry.is_file(follow_symlinks=False)]


def _parent(config: Config) -> Path | None:
    if config.payload_folder == NO_FOLDER:
        return None
    if config.payload_folder:
        return Path(config.payload_folder)
    # The machines of a Flink elsewhere would not find a folder of this one.
    if config.target == "local" and not config.redis_has_failover and redis_server.is_ours(config.redis_address):
        return redis_server.folder(config.redis_address)
    return None
