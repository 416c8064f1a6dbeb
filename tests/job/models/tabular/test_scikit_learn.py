"""scikit-learn through skops: the answers are those of the estimators, and no code of a file is run."""

from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import (
    AdaBoostClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest, f_classif, mutual_info_classif
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from cluster_serving import Predictor
from cluster_serving.job.models import load_model
from cluster_serving.job.models.tabular.scikit_learn import _jobs
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
from tests.support.fixtures.tabular import answers, assert_classified, described
from tests.support.lazy import Lazy
from tests.support.payloads import tables

skops_io = Lazy("skops.io")


def dumped(folder, model):
    skops_io.dump(model, folder / "model.skops")
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


def test_a_value_that_an_estimator_refuses_is_the_error_of_its_client_and_of_its_row_alone(tmp_path):
    x, y = tables.iris()
    frame = tables.frame(x)[["sepal_width", "petal_width"]].assign(size=np.where(x[:, 2] > 3, "long", "short"))
    columns = ColumnTransformer([("n", StandardScaler(), [0, 1]), ("t", OneHotEncoder(), ["size"])])
    model = dumped(tmp_path, make_pipeline(columns, LogisticRegression(max_iter=500)).fit(frame, y))
    good = frame.iloc[0].to_dict()
    refused = {
        "input 'petal_width' is null, which the model refuses: Input X contains NaN.": {"petal_width": None},
        "input 'petal_width' is inf, which the model refuses: Input X contains infinity": {"petal_width": np.inf},
        "input 'size' is 'huge', which the model refuses: Found unknown categories": {"size": "huge"},
        "input 'sepal_width' is null, which the model refuses: Input X": dict.fromkeys(good),
    }
    *found, last = Predictor(tmp_path).records([good, *(good | values for values in refused.values()), good])
    for error, message in zip(found[1:], refused, strict=True):
        assert isinstance(error, InvalidInput) and str(error).startswith(message), error
    for outputs in (found[0], last):
        np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(frame[:1])[0])
    dumped(tmp_path, KNeighborsClassifier().fit(x, y))
    (error,) = Predictor(tmp_path).records([{"x": [1.0, 2.0, None, 4.0]}])
    assert str(error).startswith("value 2 of input 'x' is null, which the model refuses: Input X contains NaN.")


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
    with pytest.raises(ModelError, match=r"model\.skops holds the types .*doubled, which may run code"):
        load_model(ModelOptions(str(tmp_path)))


@pytest.mark.parametrize("content", [b"", b"\x80\x04N."])
def test_another_file_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "model.skops").write_bytes(content)
    with pytest.raises(ModelError, match=r"scikit-learn cannot load .*model\.skops: .*not a zip file"):
        load_model(ModelOptions(str(tmp_path)))


def rewritten(path, change):
    """Replace the schema of a file of skops, as another version of scikit-learn would have written it."""
    with ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema = change(parts["schema.json"].decode())
    with ZipFile(path, "w") as archive:
        for name, content in {**parts, "schema.json": schema.encode()}.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "estimator",
    [
        GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1]}, cv=2),
        GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1]}, cv=StratifiedKFold(2), scoring="f1_macro"),
        VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression(max_iter=500))], voting="soft"),
        StackingClassifier([("a", GaussianNB()), ("b", KNeighborsClassifier())], cv=2),
        make_pipeline(SelectKBest(f_classif, k=2), GaussianNB()),
        make_pipeline(SelectKBest(mutual_info_classif, k=2), GaussianNB()),
        AdaBoostClassifier(n_estimators=5, random_state=0),
    ],
)
def test_estimators_with_scores_folds_and_other_estimators_are_served(tmp_path, estimator):
    x, y = tables.iris()
    model = dumped(tmp_path, estimator.fit(x, y))
    assert_classified(answers(tmp_path, x[:20]), model, x[:20])


def test_columns_may_be_selected_by_their_type(tmp_path):
    x, y = tables.iris()
    frame = pd.DataFrame(x, columns=["a", "b", "c", "d"])
    chosen = ColumnTransformer([("numbers", StandardScaler(), make_column_selector(dtype_include=np.number))])
    model = dumped(tmp_path, make_pipeline(chosen, LogisticRegression(max_iter=500)).fit(frame, y))
    got = load_model(ModelOptions(str(tmp_path))).predict([frame[name].to_numpy()[:20] for name in frame])
    np.testing.assert_array_equal(got[0], model.predict(frame[:20]))


def test_a_pipeline_of_dictionaries_is_refused_with_what_to_do(tmp_path):
    rows, y = [{"city": "Oslo"}, {"city": "Rome"}], [0, 1]
    dumped(tmp_path, make_pipeline(DictVectorizer(), LogisticRegression()).fit(rows, y))
    with pytest.raises(ModelError, match="^DictVectorizer takes dictionaries .* OneHotEncoder in a ColumnTransformer"):
        load_model(ModelOptions(str(tmp_path)))


@pytest.mark.parametrize("count", [2, 3, 20])
def test_several_targets_have_their_rows_first(tmp_path, count):
    x, y = tables.iris()
    both = np.stack([y, (y + 1) % 3], axis=1)
    model = dumped(tmp_path, RandomForestClassifier(n_estimators=4, random_state=0).fit(x, both))
    label, probabilities = load_model(ModelOptions(str(tmp_path))).predict([x[:count]])
    np.testing.assert_array_equal(label, model.predict(x[:count]))
    assert probabilities.shape == (count, 2, 3)
    np.testing.assert_array_equal(probabilities[:, 1], model.predict_proba(x[:count])[1])


def test_targets_of_different_classes_have_labels_alone(tmp_path, caplog):
    x, y = tables.iris()
    dumped(tmp_path, RandomForestClassifier(n_estimators=4).fit(x, np.stack([y, y > 0], axis=1)))
    assert [spec.name for spec in load_model(ModelOptions(str(tmp_path))).outputs] == ["label"]
    assert "differ in their numbers of classes" in caplog.text


def test_a_file_of_another_version_is_told(tmp_path, caplog):
    x, y = tables.iris()
    model = dumped(tmp_path, LogisticRegression(max_iter=500).fit(x, y))
    assert_classified(answers(tmp_path, x[:5]), model, x[:5])
    assert caplog.text == ""
    rewritten(tmp_path / "model.skops", lambda schema: schema.replace(sklearn.__version__, "1.5.2"))
    assert_classified(answers(tmp_path, x[:5]), model, x[:5])
    assert f"was written by scikit-learn 1.5.2, and {sklearn.__version__} computes it" in caplog.text


def test_a_parameter_that_an_earlier_version_did_not_have_is_its_default(tmp_path):
    x, y = tables.iris()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(x, y)
    expected = model.predict_proba(x[:20])
    # As every pipeline of scikit-learn 1.5.
    del model.transform_input
    dumped(tmp_path, model)
    _, probabilities = load_model(ModelOptions(str(tmp_path))).predict([x[:20]])
    np.testing.assert_array_equal(probabilities, expected)


def test_a_parameter_that_the_installed_version_leaves_out_is_refused_where_answers_follow_from_it(tmp_path):
    x, y = tables.iris()
    model = AdaBoostClassifier(n_estimators=5).fit(x, y)
    # As by default up to scikit-learn 1.5.
    model.algorithm = "SAMME.R"
    dumped(tmp_path, make_pipeline(StandardScaler(), model).fit(x, y))
    with pytest.raises(ModelError, match=r"AdaBoostClassifier has algorithm='SAMME\.R', and scikit-learn"):
        load_model(ModelOptions(str(tmp_path)))


def test_a_type_that_the_installed_version_does_not_have_is_refused_by_both_versions(tmp_path):
    x, y = tables.iris()
    dumped(tmp_path, make_pipeline(SelectKBest(f_classif, k=2), GaussianNB()).fit(x, y))
    older = {sklearn.__version__: "1.5.2", '"f_classif"': '"f_gone"'}

    def change(schema):
        for old, new in older.items():
            assert old in schema
            schema = schema.replace(old, new)
        return schema

    rewritten(tmp_path / "model.skops", change)
    with pytest.raises(ModelError, match=r"written by scikit-learn 1\.5\.2, and .* does not have .*\.f_gone: serve"):
        load_model(ModelOptions(str(tmp_path)))


def test_estimators_compute_with_threads_and_never_with_processes():
    forest = RandomForestClassifier(n_jobs=-1)
    model = make_pipeline(ColumnTransformer([("scale", StandardScaler(), [0])], n_jobs=4), forest)
    assert _jobs(model, 3) == {"columntransformer__n_jobs": 1, "randomforestclassifier__n_jobs": 3}
    assert _jobs(forest, 3) == {"n_jobs": 3}
