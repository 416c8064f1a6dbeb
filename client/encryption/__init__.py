"""Encryption of images that a client sends (`protocol.encryption`)."""

from cluster_serving.protocol.encryption.images import encrypt
from cluster_serving.protocol.record_key import RecordKey, published_key

__all__ = ["RecordKey", "encrypt", "published_key"]
