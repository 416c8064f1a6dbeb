#!/usr/bin/env bash
# Guess: trees split a feature wherever the training has two values; a column of seconds since 1970 in float64 is
#   exact.
# Happens: XGBoost, CatBoost and scikit-learn's DecisionTreeClassifier convert to float32, where such seconds are
#   steps of 128: records that are two minutes apart are one to them, also with float64 in and out. LightGBM and
#   HistGradientBoostingClassifier tell seconds apart.
# Since: XGBoost 2.1.1 and scikit-learn 1.3.2, the oldest that were tried; CatBoost 1.2.10, of which no other was.
# Fails with seconds since the first record.
# Ours: job/models/tabular/xgboost.py names float32 as the type of its inputs.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 scikit-learn==1.9.1 xgboost-cpu==3.2.0 lightgbm==4.7.0 pandas==2.2.3 six==1.17.0
beside boosters catboost==1.2.10
PYTHONPATH=boosters venv/bin/python - <<'PYTHON'
import catboost, lightgbm, numpy, xgboost
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier

seconds = 1_764_000_000.0 + numpy.arange(300)[:, None]
late = (seconds[:, 0] >= 1_764_000_150).astype(int)
models = {
    "scikit-learn's tree": DecisionTreeClassifier(),
    "xgboost": xgboost.XGBClassifier(n_jobs=1),
    "catboost": catboost.CatBoostClassifier(iterations=50, verbose=0, thread_count=1, allow_writing_files=False),
    "scikit-learn's histograms": HistGradientBoostingClassifier(min_samples_leaf=1),
    "lightgbm": lightgbm.LGBMClassifier(n_jobs=1, verbose=-1, min_child_samples=1, min_data_in_bin=1),
}
right = {}
for name, model in models.items():
    right[name] = (model.fit(seconds, late).predict(seconds) == late).mean()
    print(f"{name}: {right[name]:.0%} of the records of the training are right")
*rounded, histograms, lightgbm_right = right.values()
assert max(rounded) < 0.9 and min(histograms, lightgbm_right) > 0.99, right
PYTHON
