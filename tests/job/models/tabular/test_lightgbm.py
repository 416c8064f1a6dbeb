"""LightGBM: the answers are those of its own classes."""

import lightgbm
import numpy as np
import pandas as pd
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
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


def test_a_name_whose_spaces_the_file_has_replaced_is_matched_and_another_is_refused(tmp_path):
    x, y = tables.iris()
    names = [name.replace("_", " ") for name in tables.NAMES]
    model = lightgbm.LGBMClassifier(**OPTIONS).fit(pd.DataFrame(x, columns=names), y)
    save(model, tmp_path / "model.txt")
    rows = [dict(zip(reversed(names), reversed(row), strict=True)) for row in x[40:60]]
    assert_classified(answers(tmp_path, rows), model, pd.DataFrame(x[40:60], columns=names))
    for wrong in ("abcd", [*names[:3], "petal-width"]):
        with pytest.raises(InvalidInput, match=r"the request has the inputs .*; the model expects sepal_length"):
            answers(tmp_path, [dict(zip(wrong, x[0], strict=True))])


def test_a_model_trained_without_holes_reads_a_missing_value_as_zero_as_the_library_does(tmp_path):
    x, y = tables.diabetes()
    model = lightgbm.LGBMRegressor(**OPTIONS).fit(x, y)
    save(model, tmp_path / "model.txt")
    holes = tables.holed(x[:50])
    found = answers(tmp_path, holes)["value"]
    np.testing.assert_allclose(found, model.predict(holes))
    np.testing.assert_allclose(found, model.predict(np.nan_to_num(holes)))


def test_categories_of_a_data_frame_are_its_values(tmp_path):
    frame, y = tables.categories()
    model = lightgbm.LGBMRegressor(**OPTIONS, min_child_samples=1, min_data_per_group=1, cat_smooth=0).fit(frame, y)
    save(model, tmp_path / "model.txt")
    assert described(tmp_path)[0] == ["size: str[?]", "floor: float64[?]", "area: float64[?]"]
    rows = frame.astype({"size": object, "floor": int}).to_dict("records")
    np.testing.assert_allclose(answers(tmp_path, rows)["value"], model.predict(frame))
    # LightGBM takes another category for a missing value.
    others = frame.assign(size=pd.Categorical(["huge"] * len(frame)), floor=pd.Categorical([4] * len(frame)))
    found = answers(tmp_path, [row | {"size": "huge", "floor": 4} for row in rows])["value"]
    np.testing.assert_allclose(found, model.predict(others))
    codes = np.stack([frame["size"].cat.codes, frame.floor.cat.codes, frame.area], 1).astype(float)
    np.testing.assert_allclose(answers(tmp_path, codes, inputs=("x",))["value"], model.predict(frame))


def test_numbers_that_are_categories_keep_their_values(tmp_path):
    frame, y = tables.categories()
    frame = frame[["floor", "area"]].astype(float)
    model = lightgbm.LGBMRegressor(**OPTIONS, min_data_per_group=1).fit(frame, y, categorical_feature=["floor"])
    save(model, tmp_path / "model.txt")
    others = frame.assign(floor=np.arange(len(frame)) % 9 - 1.5)
    for table in (frame, others):
        np.testing.assert_allclose(answers(tmp_path, table.to_dict("records"))["value"], model.predict(table))


def test_categories_of_which_the_file_does_not_tell_the_columns_are_refused(tmp_path):
    frame, y = tables.categories()
    frame["size"] = frame["size"].cat.as_ordered()
    model = lightgbm.LGBMRegressor(**OPTIONS, min_child_samples=1).fit(frame, y)
    save(model, tmp_path / "model.txt")
    with pytest.raises(
        ModelError, match=r"model\.txt has the categories of 2 columns .* 1 columns \(floor\) .* inputs: x"
    ):
        load_model(ModelOptions(str(tmp_path)))
    codes = np.stack([frame["size"].cat.codes, frame.floor.cat.codes, frame.area], 1).astype(float)
    np.testing.assert_allclose(answers(tmp_path, codes, inputs=("x",))["value"], model.predict(frame))


def explicit(numbers):
    """A frame with a column of numbers that is named as one of categories, beside one of ordered categories."""
    frame, y = tables.categories()
    frame = frame.assign(area=numbers, floor=frame.floor.cat.as_ordered())
    options = {**OPTIONS, "min_child_samples": 1, "min_data_per_group": 1}
    return frame, lightgbm.LGBMRegressor(**options).fit(frame, y, categorical_feature=["size", "area"])


def test_a_column_of_numbers_never_has_the_categories_of_another_column(tmp_path):
    frame, model = explicit(np.arange(120) % 11)
    save(model, tmp_path / "model.txt")
    with pytest.raises(
        ModelError, match=r"2 columns .* 2 columns \(size, area\) .* not of all columns which.*inputs: x"
    ):
        load_model(ModelOptions(str(tmp_path)))
    codes = np.stack([frame["size"].cat.codes, frame.floor.cat.codes, frame.area], 1).astype(float)
    np.testing.assert_allclose(answers(tmp_path, codes, inputs=("x",))["value"], model.predict(frame))


def test_a_value_is_refused_where_the_categories_may_be_those_of_another_column(tmp_path):
    _, model = explicit(np.arange(120) // 2 % 3)
    save(model, tmp_path / "model.txt")
    with pytest.raises(InvalidInput, match="input 'area' is 0.0, which is not one of its categories: 5, 6, 7"):
        answers(tmp_path, [{"size": "small", "floor": 5, "area": 0}])


@pytest.mark.parametrize(
    "objective",
    [
        *("regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie"),
        "cross_entropy",
    ],
)
def test_a_regressor_answers_as_its_class(tmp_path, objective):
    x, y = tables.diabetes()
    y = y / y.max() if objective == "cross_entropy" else y
    model = lightgbm.LGBMRegressor(**OPTIONS, objective=objective).fit(x, y)
    save(model, tmp_path / "model.txt")
    np.testing.assert_allclose(answers(tmp_path, x[:30])["value"], model.predict(x[:30]))


@pytest.mark.parametrize("objective", ["binary", "multiclass", "multiclassova"])
@pytest.mark.parametrize("boosting", ["gbdt", "dart", "rf"])
def test_a_classifier_of_any_objective_answers_as_its_class(tmp_path, objective, boosting):
    x, y = tables.cancer() if objective == "binary" else tables.iris()
    bagged = {"subsample": 0.5, "subsample_freq": 1} if boosting == "rf" else {}
    model = lightgbm.LGBMClassifier(**OPTIONS, objective=objective, boosting_type=boosting, **bagged).fit(x, y)
    save(model, tmp_path / "model.txt")
    assert_classified(answers(tmp_path, x[:40]), model, x[:40])
