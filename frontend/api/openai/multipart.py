"""Bodies of the type multipart/form-data, in which clients send files."""

from email.message import Message
from email.parser import BytesHeaderParser
from typing import NamedTuple

from cluster_serving.protocol.errors import InvalidInput

_MOST_PARTS = 16
_LONGEST_HEADER = 4096
_LONGEST_TYPE = 1024


class Part(NamedTuple):
    """A field of a form: its content, and the name of the file, empty for a field that is no file."""

    content: bytes
    filename: str = ""


def parts(body: bytes, content_type: str) -> dict[str, Part]:
    """Return the fields of a form by name.

    Raises:
        InvalidInput: If the body is no form, or has more parts or longer headers than forms with files have.
    """
    if len(content_type) > _LONGEST_TYPE:
        raise InvalidInput(f"the header Content-Type has more than {_LONGEST_TYPE} characters")
    head = Message()
    head["content-type"] = content_type
    boundary = head.get_boundary("")
    if head.get_content_type() != "multipart/form-data" or not boundary:
        raise InvalidInput("the body is not multipart/form-data with a boundary")
    found = {}
    # The first piece is before the first boundary, and the last one after the end.
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin1", "replace"), _MOST_PARTS + 2)
    if len(pieces) > _MOST_PARTS + 2:
        raise InvalidInput(f"the form has more than {_MOST_PARTS} parts")
    for piece in pieces[1:-1]:
        headers, gap, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if len(headers) > _LONGEST_HEADER:
            raise InvalidInput(f"the headers of a part of the form have more than {_LONGEST_HEADER} bytes")
        described = BytesHeaderParser().parsebytes(headers)
        name = described.get_param("name", header="content-disposition")
        if not gap or not isinstance(name, str):
            raise InvalidInput("a part of the form has no name")
        found[name] = Part(content, described.get_filename("")[:256])
    return found
