#!/usr/bin/env bash
# Guess: a data frame with the columns of the training in another order is refused by LightGBM, XGBoost and CatBoost
#   alike, for all three keep the names of the columns in the model.
# Happens: XGBoost refuses it, CatBoost puts the columns in order, and LightGBM computes with them by position: no
#   warning, and answers as good as a coin's.
# Since: LightGBM 2.3.1, XGBoost 2.1.1 and CatBoost 1.2, the oldest that were tried.
# Ours: job/models/tabular/lightgbm.py has an input for each name of a column.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 pandas==2.2.3 scikit-learn==1.9.1 lightgbm==4.7.0 xgboost-cpu==3.2.0 six==1.17.0
beside boosters catboost==1.2.10
PYTHONPATH=boosters venv/bin/python - <<'PYTHON'
import catboost, lightgbm, numpy, pandas, xgboost

frame = pandas.DataFrame(numpy.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
label = (frame.a > 0).astype(int)
models = {
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBClassifier(n_estimators=5, n_jobs=1),
    "catboost": catboost.CatBoostClassifier(iterations=5, verbose=0, thread_count=1, allow_writing_files=False),
}
seen = {}
for name, model in models.items():
    model.fit(frame, label)
    right = (model.predict(frame) == label).mean()
    try:
        moved = (model.predict(frame[["c", "b", "a"]]) == label).mean()
        seen[name] = "same" if moved == right else "other"
        print(f"{name}: {right:.2f} right; columns in another order: {moved:.2f} right")
    except ValueError as error:
        seen[name] = "refused"
        print(f"{name}: {right:.2f} right; columns in another order: {error}")
assert seen == {"lightgbm": "other", "xgboost": "refused", "catboost": "same"}, seen
PYTHON
