"""The addresses of Redis beside the URLs that redis-py reads, and the mistakes in one: a further kind is named here."""

from cluster_serving.protocol.redis.failover import is_cluster_url, is_failover_url, parse, pool_settings
from cluster_serving.protocol.redis.tls import told

__all__ = ["is_cluster_url", "is_failover_url", "parse", "pool_settings", "told"]
