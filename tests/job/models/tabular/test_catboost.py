"""CatBoost: the answers are those of its own classes."""

import catboost
import numpy as np
import pandas as pd
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
from tests.support.fixtures.tabular import answers, assert_classified, described
from tests.support.payloads import tables

OPTIONS = {"iterations": 8, "depth": 3, "thread_count": 1, "verbose": False, "allow_writing_files": False}


@pytest.mark.parametrize("file", ["flowers.cbm", "model.cb"])
@pytest.mark.parametrize("table", [tables.iris, tables.cancer])
def test_a_classifier_gives_classes_and_probabilities(tmp_path, table, file):
    x, y = table()
    model = catboost.CatBoostClassifier(**OPTIONS).fit(x, y)
    model.save_model(str(tmp_path / file))
    assert_classified(answers(tmp_path, x[:40]), model, x[:40])


def test_classes_may_be_texts(tmp_path):
    x, y = tables.iris()
    model = catboost.CatBoostClassifier(**OPTIONS).fit(x, np.array(["setosa", "versicolor", "virginica"])[y])
    model.save_model(str(tmp_path / "model.cbm"))
    assert described(tmp_path)[1] == ["label: str[?]", "probabilities: float64[?, 3]"]
    assert_classified(answers(tmp_path, x[40:60]), model, x[40:60])


def test_missing_values_are_nan_and_never_zero(tmp_path):
    x, y = tables.diabetes()
    x = tables.holed(x)
    model = catboost.CatBoostRegressor(**OPTIONS).fit(x, y)
    model.save_model(str(tmp_path / "model.cbm"))
    found = answers(tmp_path, x[:50])["value"]
    np.testing.assert_allclose(found, model.predict(x[:50]))
    assert not np.allclose(found, model.predict(np.nan_to_num(x[:50])))


def test_categories_are_texts_beside_numbers(tmp_path):
    x, y = tables.iris()
    table = pd.DataFrame({"width": x[:, 1], "size": np.where(x[:, 2] > 3, "long", "short"), "petal": x[:, 3]})
    model = catboost.CatBoostClassifier(**OPTIONS, cat_features=["size"]).fit(table, y)
    model.save_model(str(tmp_path / "model.cbm"))
    assert described(tmp_path)[0] == ["width: float64[?]", "size: str[?]", "petal: float64[?]"]
    records = table.to_dict("records")
    assert_classified(answers(tmp_path, records[:60]), model, table[:60])
    holed = [record | {"petal": np.nan} for record in records[:5]]
    assert_classified(answers(tmp_path, holed), model, table[:5].assign(petal=np.nan))
    with pytest.raises(InvalidInput, match="input 'size' is a missing value, and CatBoost takes no missing text"):
        answers(tmp_path, [records[0], records[1] | {"size": None}])
    with pytest.raises(InvalidInput, match="'size' is 1.5; expected a text or a whole number"):
        answers(tmp_path, [records[0] | {"size": 1.5}])


def test_named_features_are_inputs_and_may_be_one_vector(tmp_path):
    x, y = tables.iris()
    model = catboost.CatBoostClassifier(**OPTIONS).fit(tables.frame(x), y)
    model.save_model(str(tmp_path / "model.cbm"))
    assert described(tmp_path)[0] == [f"{name}: float64[?]" for name in tables.NAMES]
    assert_classified(answers(tmp_path, tables.named(x[:20])), model, tables.frame(x[:20]))
    assert_classified(answers(tmp_path, x[:20], inputs=("x",)), model, tables.frame(x[:20]))


@pytest.mark.parametrize("content", [b"", b"garbage" * 40])
def test_another_file_is_refused_with_its_name_and_the_way_out(tmp_path, content):
    (tmp_path / "model.cbm").write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.cbm is not a model of CatBoost .*save_model\('model\.cbm'\)"):
        load_model(ModelOptions(str(tmp_path)))


LOSSES = (
    *("RMSE", "MAE", "Quantile:alpha=0.3", "MultiQuantile:alpha=0.1,0.5", "LogLinQuantile", "Poisson", "MAPE"),
    *("Tweedie:variance_power=1.5", "Expectile:alpha=0.3", "Huber:delta=1.0", "Lq:q=3", "RMSEWithUncertainty"),
    *("LogCosh", "Cox"),
)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_regressor_of_any_loss_answers_as_its_class(tmp_path, loss):
    x, y = tables.diabetes()
    model = catboost.CatBoostRegressor(**OPTIONS, loss_function=loss).fit(x, y / 100)
    model.save_model(str(tmp_path / "model.cbm"))
    np.testing.assert_allclose(answers(tmp_path, x[:30])["value"], model.predict(x[:30]))


def test_several_numbers_and_a_ranking_are_answered_as_by_their_classes(tmp_path):
    x, y = tables.diabetes()
    model = catboost.CatBoostRegressor(**OPTIONS, loss_function="MultiRMSE").fit(x, np.stack([y, -y], axis=1))
    model.save_model(str(tmp_path / "model.cbm"))
    np.testing.assert_allclose(answers(tmp_path, x[:30])["value"], model.predict(x[:30]))
    pool = catboost.Pool(x, y / y.max(), group_id=np.arange(len(y)) // 10)
    model = catboost.CatBoostRanker(**OPTIONS, loss_function="YetiRank").fit(pool)
    model.save_model(str(tmp_path / "model.cbm"))
    np.testing.assert_allclose(answers(tmp_path, x[:30])["value"], model.predict(x[:30]))


@pytest.mark.parametrize("loss", ["MultiLogloss", "MultiCrossEntropy"])
def test_each_of_several_labels_is_0_or_1(tmp_path, loss):
    x, labels = tables.labels()
    model = catboost.CatBoostClassifier(**OPTIONS, loss_function=loss).fit(x, labels)
    model.save_model(str(tmp_path / "model.cbm"))
    found = answers(tmp_path, x[:30])
    np.testing.assert_array_equal(found["label"], model.predict(x[:30]))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x[:30]))


@pytest.mark.parametrize("classes", [[False, True], [5, 7], [0.5, 1.5], ["no", "yes"]])
@pytest.mark.parametrize("border", [None, 0.2])
def test_classes_and_their_border_are_those_of_the_file(tmp_path, classes, border):
    x, y = tables.cancer()
    model = catboost.CatBoostClassifier(**OPTIONS).fit(x, np.array(classes)[y])
    if border:
        model.set_probability_threshold(border)
    model.save_model(str(tmp_path / "model.cbm"))
    found = answers(tmp_path, x[:100])
    np.testing.assert_array_equal(found["label"], model.predict(x[:100]).astype(found["label"].dtype))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x[:100]))


def test_whole_numbers_stand_for_their_texts_and_decimals_do_not(tmp_path):
    frame, y = tables.categories()
    frame = frame.astype({"floor": int})
    model = catboost.CatBoostRegressor(**OPTIONS, cat_features=["size", "floor"]).fit(frame, y)
    model.save_model(str(tmp_path / "model.cbm"))
    rows = frame.to_dict("records")
    np.testing.assert_allclose(answers(tmp_path, rows)["value"], model.predict(frame))
    texts = [row | {"floor": str(row["floor"])} for row in rows]
    np.testing.assert_allclose(answers(tmp_path, texts)["value"], model.predict(frame))
    with pytest.raises(InvalidInput, match=r"input 'floor' is 5.0; expected a text or a whole number; the model"):
        answers(tmp_path, [rows[0] | {"floor": 5.0}])


def test_features_of_vectors_are_refused_with_what_to_do(tmp_path):
    pool = catboost.Pool(pd.DataFrame({"v": [[0.0, 1.0], [1.0, 0.0]] * 9}), [0, 1] * 9, embedding_features=["v"])
    catboost.CatBoostClassifier(**OPTIONS).fit(pool).save_model(str(tmp_path / "model.cbm"))
    with pytest.raises(ModelError, match="has features that are vectors, v, .* with a column for each number"):
        load_model(ModelOptions(str(tmp_path)))
