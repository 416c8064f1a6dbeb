"""Examples in the help of the commands, as a person types them."""

# By command: what follows its name.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": ("", "--handler", "-c digits/config.yaml"),
    "start": ("", "--http", "-c digits/config.yaml"),
    "stop": ("", "digits"),
    "quickstart": ("",),
    "restart": ("", "--http"),
    "shutdown": ("", "--yes", "--keep-data"),
    "package": ("", "--output archives"),
    "list": ("", "--json"),
    "status": ("", "digits --watch", "digits --json"),
    "forget": ("digits", "digits --yes"),
    "update": ("", "--canary 10", "--shadow 5"),
    "scale": ("4", "digits 4"),
    "promote": ("", "digits"),
    "rollback": ("", "digits"),
    "tune": ("", "--seconds 60"),
    "try": ("", "model --once", "model --input image=@cat.jpg"),
    "score": (
        "--input 'data/*.parquet' --output scores",
        "--input a.csv --columns x=age,fare --output scores",
        "--input photos --output labels --job digits",
    ),
    "metrics": ("", "digits"),
    "events": ("", "digits --number 10"),
    "logs": ("--follow", "--errors"),
    "doctor": ("", "--json"),
    "dead": ("list", "requeue --all"),
    "dead list": ("", "digits --json"),
    "dead show": ("1767225600000-0", "1767225600000-0 --job digits"),
    "dead requeue": ("1767225600000-0", "--all --job digits"),
    "dead purge": ("1767225600000-0", "--all --yes"),
    "cluster-serving": ("init", "start --http", "status --watch"),
    "cluster-serving-cli": ("list", "status --watch", "doctor"),
}


def epilog(name: str, typed: str) -> str:
    """Return what stands below the help of a command that is typed as `typed`: its examples, and the other options."""
    lines = [f"  {typed} {words}".rstrip() for words in _EXAMPLES[name]]
    return "\n".join(["Examples:", *lines, "", "--version prints the version."])
