"""Looking through a stream for entries that have a field."""

from __future__ import annotations

from cluster_serving.protocol.scripts import Call, Script

# A page ends after about 1 MiB or 1000 entries, so that Redis is not kept from its other clients.
_PAGE = Script("""
local last, seen, bytes, found = ARGV[1], 0, 0, {}
while seen < 1000 and bytes < 1048576 do
  local entries = redis.call('XREVRANGE', KEYS[1], last, '-', 'COUNT', 16)
  if #entries == 0 then return {'', found} end
  for _, entry in ipairs(entries) do
    for i = 1, #entry[2], 2 do
      local value = entry[2][i + 1]
      bytes = bytes + #value
      if entry[2][i] == ARGV[2] and (not ARGV[3] or value == ARGV[3]) then found[#found + 1] = {entry[1], value} end
    end
  end
  seen = seen + #entries
  last = '(' .. entries[#entries][1]
end
return {last, found}
""")

NEWEST = b"+"
"""Where the first page begins."""


def page(stream: str, last: bytes, field: str, value: bytes | None = None) -> Call:
    """The call that looks through a page of a stream, newest entries first.

    Its reply is where the next page begins, empty behind the last one, and the id and value of each entry found.

    Args:
        stream: Key of the stream.
        last: `NEWEST`, or where the page before said that this one begins.
        field: Which field entries must have.
        value: What must be in it; None for anything.
    """
    return Call(_PAGE, [stream], [last, field, *([] if value is None else [value])])
