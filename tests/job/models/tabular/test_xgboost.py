"""XGBoost: the answers are those of its own classes, for every file that it writes."""

import numpy as np
import pytest
import xgboost

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.tabular import answers, assert_classified, described
from tests.support.payloads import tables


def classifier(x, y, **options):
    return xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1, **options).fit(x, y)


@pytest.mark.parametrize("file", ["model.json", "flowers.ubj", "xgboost.json", "flowers.xgb.json"])
@pytest.mark.parametrize("table", [tables.iris, tables.cancer])
def test_a_classifier_gives_classes_and_probabilities(tmp_path, table, file):
    x, y = table()
    model = classifier(x, y)
    model.save_model(tmp_path / file)
    assert_classified(answers(tmp_path, x[:40]), model, x[:40])


@pytest.mark.parametrize("file", ["xgb_flowers.model", "model.xgb"])
def test_a_file_of_another_extension_is_read_by_its_content(tmp_path, file):
    x, y = tables.iris()
    model = classifier(x, y)
    (tmp_path / file).write_bytes(model.get_booster().save_raw("ubj"))
    assert_classified(answers(tmp_path, x[:10]), model, x[:10])


def test_missing_values_are_nan_and_never_zero(tmp_path):
    x, y = tables.diabetes()
    x = tables.holed(x)
    model = xgboost.XGBRegressor(n_estimators=8, n_jobs=1).fit(x, y)
    model.save_model(tmp_path / "model.ubj")
    found = answers(tmp_path, x[:50])["value"]
    np.testing.assert_allclose(found, model.predict(x[:50]), rtol=1e-5)
    assert not np.allclose(found, model.predict(np.nan_to_num(x[:50])))


def test_named_features_are_inputs_and_may_be_one_vector(tmp_path):
    x, y = tables.iris()
    model = classifier(tables.frame(x), y)
    model.save_model(tmp_path / "model.ubj")
    columns = [f"{name}: float32[?]" for name in tables.NAMES]
    assert described(tmp_path) == (columns, ["label: int64[?]", "probabilities: float32[?, 3]"], "")
    assert_classified(answers(tmp_path, tables.named(x[:20])), model, tables.frame(x[:20]))
    swapped = answers(tmp_path, tables.named(x[:20]), inputs=tuple(reversed(tables.NAMES)))
    assert_classified(swapped, model, tables.frame(x[:20]))
    assert_classified(answers(tmp_path, x[:20], inputs=("x",)), model, tables.frame(x[:20]))
    assert described(tmp_path, inputs=("x",))[0] == ["x: float32[?, 4]"]


def test_rounds_after_the_best_one_do_not_count_as_in_the_library(tmp_path):
    x, y = tables.cancer()
    model = xgboost.XGBClassifier(n_estimators=60, learning_rate=1.0, early_stopping_rounds=3, n_jobs=1)
    model.fit(x[:300], y[:300], eval_set=[(x[300:], y[300:])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    model.save_model(tmp_path / "model.ubj")
    assert_classified(answers(tmp_path, x[:40]), model, x[:40])


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({"objective": "reg:squarederror"}, "value"),
        ({"objective": "count:poisson"}, "value"),
        ({"booster": "gblinear"}, "value"),
        ({"booster": "dart", "rate_drop": 0.3}, "value"),
    ],
)
def test_a_booster_answers_as_its_own_predict(tmp_path, options, output):
    x, y = tables.diabetes()
    data = xgboost.DMatrix(x, y)
    booster = xgboost.train(options | {"nthread": 1}, data, num_boost_round=6)
    booster.save_model(tmp_path / "model.ubj")
    np.testing.assert_allclose(answers(tmp_path, x[:30])[output], booster.predict(data)[:30], rtol=1e-4)


def test_classes_alone_have_their_probabilities_too(tmp_path):
    x, y = tables.iris()
    data = xgboost.DMatrix(x, y)
    options = {"objective": "multi:softmax", "num_class": 3, "nthread": 1}
    booster = xgboost.train(options, data, num_boost_round=4)
    booster.save_model(tmp_path / "model.ubj")
    found = answers(tmp_path, x)
    np.testing.assert_array_equal(found["label"], booster.predict(data))
    np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_an_output_can_be_chosen(tmp_path):
    x, y = tables.iris()
    classifier(x, y).save_model(tmp_path / "model.ubj")
    assert answers(tmp_path, x[:2], outputs=("label",)).keys() == {"label"}


@pytest.mark.parametrize("content", [b"", b"garbage", b'{"learner": 1}', b"{L\x00"])
def test_another_file_is_refused_with_its_name_and_the_way_out(tmp_path, content):
    (tmp_path / "model.ubj").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.ubj is not a model of XGBoost .*save_model\('model\.ubj'\)"):
        load_model(ModelOptions(str(tmp_path)))


def test_a_file_with_the_extension_of_bigdl_is_told_by_its_content(tmp_path):
    x, y = tables.iris()
    (tmp_path / "0001.model").write_bytes(classifier(x, y).get_booster().save_raw("ubj"))
    with pytest.raises(ModelError, match=r"is a model of XGBoost: rename it to 0001\.ubj"):
        load_model(ModelOptions(str(tmp_path)))
