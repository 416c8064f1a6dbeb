"""Open files of this process: each connection is one, so the limit of open files bounds the connections."""

import logging
import resource

from cluster_serving.frontend.options import HttpOptions

SURPLUS = 64
"""Connections beyond `maxConnections` that may stay until their first request, which is answered with 503."""

_RESERVED = 256
"""Open files for all but clients: connections to Redis, processes, logs, and the surplus."""

log = logging.getLogger(__name__)


def fitted(options: HttpOptions) -> HttpOptions:
    """Raise the limit of open files as far as need be; return the options with as many connections as it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections_each + _RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return options
    most = options.workers * max(1, soft - min(_RESERVED, soft // 2))
    log.warning(
        "maxConnections is %d instead of %d, as this process may have %d open files; raise its hard limit (ulimit -Hn)",
        *(most, options.max_connections, soft),
    )
    return options.model_copy(update={"max_connections": most})
