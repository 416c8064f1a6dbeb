"""Train the network of examples/handlers/generator on questions and answers, and write it to model/ with its handler.

It needs `pip install 'cluster-serving[quickstart,torch,onnx]' 'onnx<1.22'`.
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, "../handlers/generator")
from train import train

Path("model").mkdir(exist_ok=True)
text = Path("questions.txt").read_text("utf8")
train(text * 2, "model", steps=int(sys.argv[1]) if len(sys.argv) > 1 else 500, length=48)
shutil.copy("../handlers/generator/handler.py", "model/generator.py")
shutil.copy("handler.py", "model")
print("Wrote model/")
