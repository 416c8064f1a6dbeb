#!/usr/bin/env bash
# Guess: XGBoost 3.0 refuses a file that XGBoost 3.2 wrote, or warns, if it cannot read all of it.
# Happens: it loads the file without a word, and predicts without the base score: 1 where 3.2 predicts 100. The file
#   has "base_score": "[9.99E1]", a list, and older readers take that for 0.
# Since: XGBoost 3.1.0 writes such files; 2.1.1 to 3.0.5 read them in this way, 3.1.0 and later read them rightly.
# Ours: job/models/tabular/xgboost.py refuses a file of a newer version than the installed one.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 xgboost-cpu==3.2.0
beside older xgboost-cpu==3.0.5
cat >read.py <<'PYTHON'
import sys

import numpy, xgboost

model = xgboost.Booster(model_file="model.json")
answers = model.predict(xgboost.DMatrix(numpy.load("records.npy")))
numpy.save(sys.argv[1], answers)
print(f"XGBoost {xgboost.__version__} predicts {answers[:3]}")
PYTHON
venv/bin/python - <<'PYTHON'
import json

import numpy, xgboost

records = numpy.random.default_rng(0).normal(size=(300, 3))
numpy.save("records.npy", records)
data = xgboost.DMatrix(records, 100 + records[:, 0])
model = xgboost.train({"nthread": 1}, data, 3)
model.save_model("model.json")
with open("model.json") as file:
    print("base_score in the file:", json.load(file)["learner"]["learner_model_param"]["base_score"])
PYTHON
venv/bin/python read.py newer.npy
PYTHONPATH=older venv/bin/python read.py older.npy
venv/bin/python - <<'PYTHON'
import numpy

newer, older = numpy.load("newer.npy"), numpy.load("older.npy")
assert abs(newer - 100).max() < 5 and abs(newer - older).min() > 90
PYTHON
