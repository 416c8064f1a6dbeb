"""The groups that read the streams of a job."""

from typing import Any

import redis
from redis.exceptions import ResponseError

from cluster_serving.protocol.keys import GROUP, JobKeys


def create_group(client: redis.Redis, stream: str) -> None:
    """Create stream and group if they do not exist; the group starts at 0, before requests that are already queued.

    An original client that starts before the job may have created the group at the end of the stream, behind its own
    requests. A group without consumers is therefore set back to 0.
    """
    # At its memory limit, Redis refuses to create even a group that exists, and only the job can empty the stream.
    groups: Any = client.xinfo_groups(stream) if client.exists(stream) else []
    group = next((group for group in groups if group["name"] == GROUP.encode()), None)
    if group is None:
        try:
            client.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
    elif not group["consumers"]:
        client.xgroup_setid(stream, GROUP, "0")


def create_groups(client: redis.Redis, job: str) -> None:
    """Create the missing streams and groups of a job."""
    for stream in JobKeys(job).streams:
        create_group(client, stream)
