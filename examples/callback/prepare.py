"""Make the model folder, which has no model but the handler."""

import shutil
from pathlib import Path

Path("model").mkdir(exist_ok=True)
shutil.copy("handler.py", "model")
