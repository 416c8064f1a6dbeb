"""Values of `config.yaml` as its YAML has them."""

from pathlib import Path

from cluster_serving.settings import yaml_file


def test_numbers_with_exponents_are_exact_and_hashes_stay_texts():
    read = dict(yaml_file.read(Path("config.yaml"), "a: 1e-3\nb: 5e+07\nc: 1e23\nd: 12e4567\n"))
    values = {name: given.value for name, given in read.items()}
    assert values == {"a": 0.001, "b": 5 * 10**7, "c": 10**23, "d": "12e4567"}
