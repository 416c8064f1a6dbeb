"""Encryption of images that a client sends: `protocol.encryption`."""

from cluster_serving.protocol.encryption import RecordKey, encrypt, published_key

__all__ = ["RecordKey", "encrypt", "published_key"]
