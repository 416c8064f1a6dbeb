"""Fields of foreign files: those that nobody reads are named."""

from cluster_serving.launcher.origins.fields import Fields


def test_what_is_not_read_is_named_with_its_place():
    fields = Fields({"name": "a", "none": None, "part": {"used": 1, "other": 2}, "list": [{"x": 1}, {"x": 2, "y": 3}]})
    assert fields.take("name") == "a" and fields.take("missing", 5) == 5
    assert fields.part("part").take("used") == 1
    assert [part.take("x") for part in fields.parts("list")] == [1, 2]
    assert fields.left("a.json", "why") == ["list.y, part.other of a.json: why"]
    # Once is enough.
    assert fields.left("a.json") == []


def test_of_repeated_fields_the_last_counts():
    fields = Fields({"size": [1, 2], "port": [{"name": ["a"]}], "text": ["t"]}, repeated=True)
    assert (fields.take("size"), fields.take("missing")) == (2, None)
    assert fields.part("port").take("name") == "a"
    # A value where a part is expected is not lost.
    assert fields.part("text").take("name") is None
    assert fields.left("f") == ["text of f: no key of config.yaml means this"]
