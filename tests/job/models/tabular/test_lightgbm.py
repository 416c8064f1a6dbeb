"""LightGBM: the answers are those of its own classes."""

import lightgbm
import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.tabular import answers, assert_classified, described
from tests.support.payloads import tables

OPTIONS = {"n_estimators": 8, "num_leaves": 7, "n_jobs": 1, "verbose": -1}


def save(model, path):
    model.booster_.save_model(path)


@pytest.mark.parametrize("file", ["model.txt", "flowers.lgb", "lightgbm-flowers.txt", "lgb_flowers.txt"])
@pytest.mark.parametrize("table", [tables.iris, tables.cancer])
def test_a_classifier_gives_classes_and_probabilities(tmp_path, table, file):
    x, y = table()
    model = lightgbm.LGBMClassifier(**OPTIONS).fit(x, y)
    save(model, tmp_path / file)
    assert_classified(answers(tmp_path, x[:40]), model, x[:40])


def test_missing_values_are_nan_and_never_zero(tmp_path):
    x, y = tables.diabetes()
    x = tables.holed(x)
    model = lightgbm.LGBMRegressor(**OPTIONS).fit(x, y)
    save(model, tmp_path / "model.txt")
    found = answers(tmp_path, x[:50])["value"]
    np.testing.assert_allclose(found, model.predict(x[:50]))
    assert not np.allclose(found, model.predict(np.nan_to_num(x[:50])))


def test_named_features_are_inputs_and_may_be_one_vector(tmp_path):
    x, y = tables.iris()
    model = lightgbm.LGBMClassifier(**OPTIONS).fit(tables.frame(x), y)
    save(model, tmp_path / "model.txt")
    columns = [f"{name}: float64[?]" for name in tables.NAMES]
    assert described(tmp_path) == (columns, ["label: int64[?]", "probabilities: float64[?, 3]"], "")
    assert_classified(answers(tmp_path, tables.named(x[:20])), model, tables.frame(x[:20]))
    assert_classified(answers(tmp_path, x[:20], inputs=("x",)), model, tables.frame(x[:20]))


@pytest.mark.parametrize("content", ["", "labels\nof\nflowers", "tree\nversion=v4\nnum_class=1\n"])
def test_another_file_is_refused_with_its_name_and_the_way_out(tmp_path, content):
    (tmp_path / "model.txt").write_text(content)
    with pytest.raises(ModelError, match=r"model\.txt is not a model of LightGBM.*booster\.save_model"):
        load_model(ModelOptions(str(tmp_path)))


def test_a_file_that_lost_its_trees_is_refused(tmp_path):
    x, y = tables.iris()
    save(lightgbm.LGBMClassifier(**OPTIONS).fit(x, y), tmp_path / "model.txt")
    text = (tmp_path / "model.txt").read_text()
    (tmp_path / "model.txt").write_text(text.replace("num_leaves=", "leaves="))
    with pytest.raises(ModelError, match=r"cannot load .*model\.txt"):
        load_model(ModelOptions(str(tmp_path)))
