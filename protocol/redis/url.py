"""Addresses of Redis in which a user or a password is not percent-encoded: a part of it would pass for host or port."""

HINT = "in user and password, characters such as / # ? @ [ and % are percent-encoded, as %2F for /"

_ENDS = frozenset("/?#[]")
"""Characters that end or break the login of an address."""


def check_login(url: str) -> None:
    """Check that user and password of an address can be read; the message quotes nothing of them.

    Raises:
        ValueError: If they cannot.
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "unix":
        return
    place, _, query = (rest if separator else url).partition("?")
    login = place.rpartition("@")[0]
    # The value of a parameter may have an `@`, such as the path of a certificate.
    names = (pair.partition("=")[0] for pair in query.split("&"))
    if _ENDS & set(login) or any("@" in name for name in names):
        raise ValueError(f"the address cannot be read; {HINT}")
