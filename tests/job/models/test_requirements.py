"""Requirements of the code in a model folder."""

import pytest

from cluster_serving.job.models.detect import check
from cluster_serving.job.options import ModelOptions
from cluster_serving.launcher.shipping import distributions
from cluster_serving.protocol.errors import EngineMissing, ModelError
from tests.support.fixtures.handled import write


def checked(folder, requirements, handler=""):
    write(folder, "class Handler:\n  def predict(self, batch): return batch")
    write(folder, requirements, "requirements.txt")
    options = ModelOptions(str(folder), handler=handler)
    return check(options).requirements(options)


def test_installed_packages_pass_and_are_shipped_with_what_they_need(tmp_path):
    text = """
        # of the pipeline
        --extra-index-url https://example.com/simple
        scikit-learn>=1  # any
        pandas[performance] ; python_version >= "3.10"
        no-such-package ; python_version < "3"
        numpy==1.* , !=1.0 --hash=sha256:00 \\
        """
    assert checked(tmp_path, text.replace("numpy==1.*", "numpy>1")) == [
        "scikit-learn>=1",
        'pandas[performance]; python_version >= "3.10"',
        "numpy!=1.0,>1",
    ]
    shipped = {found.name for found in distributions.needed({"job"}, ["scikit-learn>=1"])}
    assert {"scikit-learn", "joblib", "scipy", "pyarrow"} <= shipped
    assert "scikit-learn" not in {found.name for found in distributions.needed({"job"})}


def test_missing_packages_and_versions_are_refused_with_the_command(tmp_path):
    with pytest.raises(EngineMissing, match=r"no-such-package, which is not installed; numpy<1, but .* is inst"):
        checked(tmp_path, "no-such-package\nnumpy<1")
    with pytest.raises(EngineMissing, match=r"run pip install -r .*/requirements.txt"):
        checked(tmp_path, "no-such-package")
    with pytest.raises(ModelError, match="line 2: '../mine' is not a requirement"):
        checked(tmp_path, "numpy\n../mine")


def test_the_distribution_of_an_installed_handler_is_shipped(tmp_path):
    assert checked(tmp_path, "numpy", handler="sklearn.dummy:DummyClassifier") == ["numpy", "scikit-learn"]
    with pytest.raises(ModelError, match="no installed distribution has the package nowhere"):
        checked(tmp_path, "", handler="nowhere.at_all:Handler")
