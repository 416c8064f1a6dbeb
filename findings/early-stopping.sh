#!/usr/bin/env bash
# Guess: a model that stopped early computes with its best number of trees, also from its file.
# Happens: the file of XGBoost has all trees. XGBClassifier takes the best of them, and Booster takes all: one file,
#   two answers to the same record. LightGBM writes the best trees alone.
# Since: XGBoost 2.1.1 and LightGBM 3.3.5, the oldest that were tried.
# Ours: job/models/tabular/xgboost.py reads best_iteration.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.4.6 scikit-learn==1.9.1 lightgbm==4.7.0 xgboost-cpu==3.2.0
venv/bin/python - <<'PYTHON'
import lightgbm, numpy, xgboost

random = numpy.random.default_rng(0)
records = random.normal(size=(300, 3))
label = (records[:, 0] > 0) ^ (random.random(300) < 0.35)
train, held = (records[:150], label[:150]), (records[150:], label[150:])

model = xgboost.XGBClassifier(n_estimators=60, early_stopping_rounds=5, n_jobs=1)
model.fit(*train, eval_set=[held], verbose=False)
model.save_model("xgboost.json")
wrapper = xgboost.XGBClassifier()
wrapper.load_model("xgboost.json")
booster = xgboost.Booster(model_file="xgboost.json")
wanted = model.predict_proba(held[0])[:, 1]
of_wrapper = abs(wrapper.predict_proba(held[0])[:, 1] - wanted).max()
of_booster = abs(booster.predict(xgboost.DMatrix(held[0])) - wanted).max()
print(f"xgboost: best {model.best_iteration + 1} trees, file has {booster.num_boosted_rounds()}")
print(f"xgboost: largest difference of a probability: XGBClassifier {of_wrapper:.3f}, Booster {of_booster:.3f}")

forest = lightgbm.LGBMClassifier(n_estimators=60, verbose=-1, n_jobs=1)
forest.fit(*train, eval_set=[held], callbacks=[lightgbm.early_stopping(5, verbose=False)])
forest.booster_.save_model("lightgbm.txt")
trees = lightgbm.Booster(model_file="lightgbm.txt").num_trees()
print(f"lightgbm: best {forest.best_iteration_} trees, file has {trees}")
assert of_wrapper == 0 and of_booster > 0.05 and trees == forest.best_iteration_
PYTHON
