"""Versions of a model in numbered folders."""

import numpy as np
import pytest

from cluster_serving.client import InvalidInput, VersionNotFound
from tests.support.payloads.model_zoo import digits, digits_data, save_openvino_digits, train_digits_mlp


@pytest.fixture
def model(tmp_path):
    """A folder with two versions of the digits, of which the second has its classes in reverse."""
    for version in ("1", "2", "3.tmp"):
        (tmp_path / version).mkdir()
    save_openvino_digits(tmp_path / "1")
    *hidden, (matrix, bias) = train_digits_mlp()
    digits().save_model(tmp_path / "2", [*hidden, (matrix[:, ::-1].copy(), bias[::-1].copy())], takes_images=False)
    return tmp_path


def test_one_of_the_versions_in_a_folder_is_served_and_results_name_it(started, cluster, model):
    settings = {"jobName": "versions", "modelPath": model}
    queue, results = started(**settings)
    images, labels = digits_data()

    def share_of_right_answers():
        return np.mean(
            [queue.predict({"x": x}, 30).argmax() == label for x, label in zip(images[:50], labels[:50], strict=True)]
        )

    assert queue.predict({"x": images[0]}, 30).version == "2"
    assert share_of_right_answers() < 0.2
    with pytest.raises(InvalidInput) as raised:
        queue.predict({"x": np.zeros(3, "f4")}, 30)
    assert raised.value.version == "2"
    for version, error in (("2", None), ("1", "version '1' of 'versions' is not served; served are: 2")):
        queue.enqueue(version, {"x": images[0]}, version=version)
        if error is None:
            assert results.query(version, timeout=30).version == "2"
        else:
            with pytest.raises(VersionNotFound, match=error):
                results.query(version, timeout=30)

    cluster.configure(**settings, modelVersion=3)
    refused = cluster.restart("versions")
    assert "there is no version 3 of the model" in refused.stderr and "there are 1, 2" in refused.stderr
    cluster.configure(**settings, modelVersion=1)
    changed = cluster.restart("versions")
    assert changed.returncode == 0 and "version 1" in changed.stdout, changed.stderr
    assert share_of_right_answers() > 0.8
    assert queue.predict({"x": images[0]}, 30, version=1).version == "1"
