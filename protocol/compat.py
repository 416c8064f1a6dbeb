"""Parts of the standard library that the oldest supported Python lacks."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    # A dependency on these Pythons only.
    from async_timeout import timeout

__all__ = ["timeout"]
