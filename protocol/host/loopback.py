"""Hosts that are this machine itself; no proxy leads to them."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True if a host name or address, without brackets, is that of this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
