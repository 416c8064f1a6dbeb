"""What the package's page on an index says of the repository: its addresses, and the links of README.md.

An index knows no files beside the README. Links to files lead to the `repository` that pyproject.toml names; without a
repository, their texts stay as words, and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


class RepositoryHook(MetadataHookInterface):
    """Adds `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields to those of pyproject.toml."""
        repository = self.config["repository"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf8")
        at = f"{repository}/{{kind}}/v{metadata['version']}" if repository else ""
        metadata["readme"] = {"content-type": "text/markdown", "text": page(text, at)}
        metadata["urls"] = {"Source": repository, "Changelog": f"{repository}/blob/main/CHANGELOG.md"} if at else {}


def page(text: str, at: str = "") -> str:
    """Return a README for readers elsewhere; `at` is the address of its folder, with `{kind}` for blob or raw."""

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if at:
            return f"{picture}[{words}]({at.format(kind='raw' if picture else 'blob')}/{path})"
        return "" if picture else words

    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(link, text))
