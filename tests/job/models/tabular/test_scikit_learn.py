"""scikit-learn through skops: the answers are those of the estimators, and no code of a file is run."""

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.tabular import answers, assert_classified, described
from tests.support.payloads import tables


def dumped(folder, model):
    skops.io.dump(model, folder / "model.skops")
    return model


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        RandomForestClassifier(n_estimators=8, n_jobs=-1, random_state=0),
        KNeighborsClassifier(),
        CalibratedClassifierCV(GaussianNB(), cv=2),
        MLPClassifier((4,), max_iter=5000, tol=0.01, random_state=0),
    ],
)
def test_a_classifier_gives_classes_and_probabilities(tmp_path, estimator):
    x, y = tables.iris()
    model = dumped(tmp_path, estimator.fit(x, np.array(["setosa", "versicolor", "virginica"])[y]))
    assert described(tmp_path) == (["x: float64[?, 4]"], ["label: str[?]", "probabilities: float64[?, 3]"], "")
    assert_classified(answers(tmp_path, x[40:60]), model, x[40:60])


def test_a_regressor_gives_a_number_also_for_rows_with_holes(tmp_path):
    x, y = tables.diabetes()
    x = tables.holed(x)
    model = dumped(tmp_path, HistGradientBoostingRegressor(max_iter=8).fit(x, y))
    np.testing.assert_allclose(answers(tmp_path, x[:50])["value"], model.predict(x[:50]))


def test_a_transformer_and_a_clustering_are_served(tmp_path):
    x, _ = tables.iris()
    model = dumped(tmp_path, StandardScaler().fit(x))
    np.testing.assert_allclose(answers(tmp_path, x[:9])["y"], model.transform(x[:9]))
    model = dumped(tmp_path, KMeans(3, n_init=1, random_state=0).fit(x))
    np.testing.assert_array_equal(answers(tmp_path, x[:9])["value"], model.predict(x[:9]))


def test_columns_of_a_data_frame_are_inputs_numbers_and_texts(tmp_path):
    x, y = tables.iris()
    frame = tables.frame(x)[["sepal_width", "petal_width"]].assign(size=np.where(x[:, 2] > 3, "long", "short"))
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["sepal_width", "petal_width"]),
            ("texts", make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["size"]),
        ]
    )
    model = dumped(tmp_path, make_pipeline(columns, LogisticRegression(max_iter=500)).fit(frame, y))
    assert described(tmp_path)[0] == ["sepal_width: float64[?]", "petal_width: float64[?]", "size: str[?]"]
    assert_classified(answers(tmp_path, frame[:60].to_dict("records")), model, frame[:60])
    holed = frame[:5].assign(petal_width=np.nan)
    assert_classified(answers(tmp_path, holed.to_dict("records")), model, holed)


def test_named_columns_may_be_one_vector(tmp_path):
    x, y = tables.iris()
    model = dumped(tmp_path, Ridge().fit(pd.DataFrame(x, columns=list(tables.NAMES)), y))
    found = answers(tmp_path, x[:9], inputs=("x",))["value"]
    np.testing.assert_allclose(found, model.predict(tables.frame(x[:9])))


def test_a_pipeline_that_begins_with_a_vectorizer_takes_texts(tmp_path):
    texts = ["cats purr", "dogs bark", "a cat sleeps", "the dog barks"]
    model = dumped(
        tmp_path, make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=500)).fit(texts, list("cdcd"))
    )
    assert described(tmp_path)[0] == ["text: str[?]"]
    assert_classified(answers(tmp_path, [{"text": np.array(text, object)} for text in texts]), model, texts)


def doubled(table):
    return table * 2


def test_types_that_are_not_trusted_are_refused_by_name(tmp_path):
    x, y = tables.iris()
    dumped(tmp_path, make_pipeline(FunctionTransformer(doubled), LogisticRegression(max_iter=500)).fit(x, y))
    with pytest.raises(ModelError, match=r"model\.skops holds the types .*doubled, which .* may run code"):
        load_model(ModelOptions(str(tmp_path)))


@pytest.mark.parametrize("content", [b"", b"\x80\x04N."])
def test_another_file_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "model.skops").write_bytes(content)
    with pytest.raises(ModelError, match=r"scikit-learn cannot load .*model\.skops: .*not a zip file"):
        load_model(ModelOptions(str(tmp_path)))
