"""XGBoost: the answers are those of its own classes, for every file that it writes."""

import logging

import numpy as np
import pandas as pd
import pytest
import xgboost

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
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


def saved(model, folder):
    model.save_model(folder / "model.ubj")
    return model


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw", "binary:hinge", "reg:logistic"])
def test_a_classifier_of_any_objective_answers_as_its_class(tmp_path, objective):
    x, y = tables.cancer()
    model = saved(classifier(x, y, objective=objective), tmp_path)
    assert_classified(answers(tmp_path, x[:40]), model, x[:40])


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw"])
@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_each_of_several_labels_is_0_or_1(tmp_path, objective, strategy):
    x, labels = tables.labels()
    model = saved(classifier(x, labels, objective=objective, multi_strategy=strategy), tmp_path)
    found = answers(tmp_path, x[:40])
    np.testing.assert_array_equal(found["label"], model.predict(x[:40]))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x[:40]), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "reg:logistic"},
        {"objective": "binary:logistic"},
        {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9]},
        {"objective": "count:poisson"},
        {"objective": "reg:gamma"},
        {"objective": "reg:tweedie"},
        {"objective": "survival:cox"},
        {"booster": "dart", "rate_drop": 0.3},
        {"booster": "gblinear"},
    ],
)
def test_a_regressor_answers_as_its_class(tmp_path, options):
    x, y = tables.diabetes()
    y = y / y.max() if "logistic" in options.get("objective", "") else y
    model = saved(xgboost.XGBRegressor(n_estimators=6, n_jobs=1, **options).fit(x, y), tmp_path)
    np.testing.assert_allclose(answers(tmp_path, x[:30])["value"], model.predict(x[:30]), rtol=1e-4)


def test_a_number_that_stands_for_a_missing_value_is_configured(tmp_path, caplog):
    x, y = tables.diabetes()
    x = np.where(np.isnan(tables.holed(x)), -999, x)
    model = saved(xgboost.XGBRegressor(n_estimators=6, n_jobs=1, missing=-999.0).fit(x, y), tmp_path)
    found = answers(tmp_path, x[:30], missing_value=-999.0)["value"]
    np.testing.assert_allclose(found, model.predict(x[:30]), rtol=1e-5)
    with caplog.at_level(logging.INFO):
        assert not np.allclose(answers(tmp_path, x[:30])["value"], found)
    assert "does not tell `missing` of its class; if that was not NaN, set missingValue" in caplog.text


def test_categories_of_a_data_frame_are_its_values(tmp_path):
    frame, y = tables.categories()
    model = xgboost.XGBRegressor(n_estimators=6, n_jobs=1, enable_categorical=True)
    saved(model.fit(frame, y), tmp_path)
    assert described(tmp_path)[0] == ["size: str[?]", "floor: float32[?]", "area: float32[?]"]
    rows = frame.astype({"size": object, "floor": int}).to_dict("records")
    np.testing.assert_allclose(answers(tmp_path, rows)["value"], model.predict(frame), rtol=1e-5)
    holed = frame.assign(floor=pd.Categorical([None] * len(frame), categories=frame.floor.cat.categories))
    found = answers(tmp_path, [row | {"floor": np.nan} for row in rows])["value"]
    np.testing.assert_allclose(found, model.predict(holed), rtol=1e-5)
    for wrong in ({"size": "huge"}, {"floor": 4}, {"floor": 5.5}, {"floor": -1}):
        with pytest.raises(InvalidInput, match=f"input '{next(iter(wrong))}' is .* not one of its categories: "):
            answers(tmp_path, [rows[0], rows[0] | wrong])
    codes = np.stack([frame["size"].cat.codes, frame.floor.cat.codes, frame.area], 1).astype(np.float32)
    found = answers(tmp_path, codes, inputs=("x",))["value"]
    np.testing.assert_allclose(found, model.predict(frame), rtol=1e-5)


def test_categories_that_xgboost_stores_wrongly_are_refused_and_their_codes_are_served(tmp_path):
    """XGBoost 3.2 cuts the texts of pandas by letters in place of bytes; its file has `Köl` and `nUl`."""
    cities = pd.Categorical(np.array(["Bonn", "Köln", "Ulm"])[np.arange(60) % 3])
    frame, y = pd.DataFrame({"city": cities}), np.arange(60) % 3 * 10.0
    model = saved(xgboost.XGBRegressor(n_estimators=3, n_jobs=1, enable_categorical=True).fit(frame, y), tmp_path)
    with pytest.raises(
        ModelError, match=r"may hold other categories of 'city' .* \('Bonn', 'Köl', 'nUl'\): train with"
    ):
        described(tmp_path)
    codes = cities.codes[:, None].astype(np.float32)
    np.testing.assert_allclose(answers(tmp_path, codes, inputs=("x",))["value"], model.predict(frame), rtol=1e-5)


def test_what_is_no_code_of_a_category_is_refused_in_a_vector(tmp_path):
    frame, y = tables.categories()
    model = xgboost.XGBRegressor(n_estimators=6, n_jobs=1, enable_categorical=True)
    saved(model.fit(frame, y), tmp_path)
    codes = np.stack([frame["size"].cat.codes, frame.floor.cat.codes, frame.area], 1).astype(np.float32)
    for wrong, told in ((-1, "-1"), (1.5, "1.5"), (np.inf, "inf")):
        row = codes[0].copy()
        row[1] = wrong
        with pytest.raises(InvalidInput, match=rf"input 'x\[1\]' is {told}; expected the code of a category"):
            answers(tmp_path, [codes[1], row], inputs=("x",))
    holed = codes[:1].copy()
    holed[0, 1] = np.nan
    assert answers(tmp_path, holed, inputs=("x",))["value"].shape == (1,)


@pytest.mark.parametrize("file", ["model.ubj", "model.json"])
def test_a_file_of_a_newer_version_is_refused_by_its_number(tmp_path, file):
    x, y = tables.iris()
    installed = [int(part) for part in xgboost.__version__.split(".")]
    forms = {"model.ubj": "i%ci%ci%c}", "model.json": "[%d,%d,%d]}"}
    old, new = ((forms[file] % tuple(version)).encode("latin1") for version in (installed, [3, 120, 1]))
    classifier(x, y).save_model(tmp_path / file)
    content = (tmp_path / file).read_bytes()
    assert content.endswith(old)
    (tmp_path / file).write_bytes(content.removesuffix(old) + new)
    with pytest.raises(ModelError, match=r"written by XGBoost 3\.120\.1, and .* 'xgboost-cpu>=3\.120\.1'"):
        load_model(ModelOptions(str(tmp_path)))
