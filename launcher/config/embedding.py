"""Settings of a model that embeds sentences, from the files that sentence-transformers writes beside it."""

import json
from pathlib import Path
from typing import Any

_POOLING = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}


def settings(folder: Path) -> dict[str, Any]:
    """Return the keys of `config.yaml` with the values that the files in a model folder tell; empty without them."""
    found: dict[str, Any] = {}
    modules = read_json(folder / "modules.json")
    types = [str(module.get("type")) for module in modules if isinstance(module, dict)] if modules else []
    pooling = read_json(folder / "1_Pooling" / "config.json")
    if isinstance(pooling, dict):
        # Newer files name it; older ones have a switch for each kind.
        named = pooling.get("pooling_mode")
        kinds = [named] if named else [kind for switch, kind in _POOLING.items() if pooling.get(switch)]
        if len(kinds) == 1 and kinds[0] in _POOLING.values():
            found["pooling"] = kinds[0]
    if any(kind.endswith("Normalize") for kind in types):
        found["normalize"] = True
    limits = read_json(folder / "sentence_bert_config.json")
    limit = limits.get("max_seq_length") if isinstance(limits, dict) else None
    if isinstance(limit, int) and limit > 0:
        found["maxTokens"] = limit
    return found


def read_json(path: Path) -> Any:
    """Return what a file beside a model holds; None if it is missing, or no JSON."""
    try:
        return json.loads(path.read_text("utf8"))
    except (OSError, ValueError):
        # The files are a help, no part of the model.
        return None
