"""The classes of Flink's RPC system, in the list from which Java makes an archive of classes.

They are a quarter of Flink's classes. Flink unpacks their jar, which lies in its own, into a temporary file, and loads
them by a loader of their own. Such a class is archived if the list tells its superclass, its interfaces and its jar. A
JVM takes it from the archive if it has read the same bytes, wherever the jar lies then.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from zipfile import ZipFile, is_zipfile

OPTION = "-Xlog:class+load=debug:file={}:none"
"""Option of a JVM that logs what it loads to a file."""

_JAR = "flink-rpc-akka.jar"
_LOADED = re.compile(
    r"^(?P<name>\S+) source: (?P<source>.*)\n"
    r" klass: (?P<klass>0x\w+) super: (?P<super>0x\w+)(?P<interfaces>(?: interfaces:)?(?: 0x\w+)*) loader: ",
    re.MULTILINE,
)


def unpack(jars: Iterable[Path], folder: Path) -> Path | None:
    """Unpack the jar of the RPC system into a folder; return None if none of Flink's jars holds it."""
    for path in filter(is_zipfile, jars):
        with ZipFile(path) as jar:
            if _JAR in jar.namelist():
                return Path(jar.extract(_JAR, folder))
    return None


def extended(lines: Sequence[str], logs: Iterable[str], jar: Path) -> list[str]:
    """Return the lines of a list of classes, with those that logs say were loaded from the jar.

    Args:
        lines: A class each, by its name, and instructions, which begin with "@".
        logs: Logs of `OPTION`.
        jar: The jar of the RPC system.
    """
    numbers = {name: number for number, name in enumerate(line for line in lines if not line.startswith("@"))}
    result = [f"{line} id: {numbers[line]}" if line in numbers else line for line in lines]
    own: dict[str, int] = {}
    for log in logs:
        # By the addresses of the classes in that JVM.
        known: dict[str, int | None] = {}
        for match in _LOADED.finditer(log):
            name = match["name"].replace(".", "/")
            above = [known.get(address) for address in (match["super"], *re.findall(r"0x\w+", match["interfaces"]))]
            if Path(match["source"]).name.startswith(Path(_JAR).stem):
                if name not in own and None not in above:
                    own[name] = len(numbers) + len(own)
                    interfaces = " interfaces: " + " ".join(map(str, above[1:])) if above[1:] else ""
                    result.append(f"{name} id: {own[name]} super: {above[0]}{interfaces} source: {jar}")
                known[match["klass"]] = own.get(name)
            else:
                known[match["klass"]] = numbers.get(name)
    return result
