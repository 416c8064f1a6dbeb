"""Protobuf messages as text, in the forms that Triton's users write."""

import pytest

from cluster_serving.launcher.origins.text_proto import one, parse


def test_fields_lists_messages_and_comments_are_read():
    message = parse(
        """
        name: "a # b"  # the name
        max_batch_size: 8;
        ratio: 0.5, on: true
        kind: KIND_GPU
        dims: [ 1, -1 ]
        dims: 3
        input { name: 'x' }
        input: [ { name: "y" dims: [2] }, < name: "z" > ]
        empty: []
        """
    )
    assert message == {
        "name": ["a # b"],
        "max_batch_size": [8],
        "ratio": [0.5],
        "on": [True],
        "kind": ["KIND_GPU"],
        "dims": [1, -1, 3],
        "input": [{"name": ["x"]}, {"name": ["y"], "dims": [2]}, {"name": ["z"]}],
        "empty": [],
    }
    assert (one(message, "dims"), one(message, "empty"), one(message, "missing")) == (3, None, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"it\'s \"x\""', 'it\'s "x"'),
        (r"'say \"hi\" it\'s'", 'say "hi" it\'s'),
        (r'"\303\244 \x41\n"', "ä A\n"),
        ('"one" " and " \'more\'', "one and more"),
        ('""', ""),
        ('"true"', "true"),
        ("1e-3", 0.001),
        ("5e-7", 5e-7),
        ("1.5f", 1.5),
        ("0x10", 16),
        ("010", 8),
        ("-3", -3),
        ("-inf", -float("inf")),
    ],
)
def test_values_are_written_as_in_protobuf(text, value):
    assert parse(f"a: {text} b: 1") == {"a": [value], "b": [1]}


@pytest.mark.parametrize(
    "text",
    [
        "a: [1, 2",
        "a { b: 1",
        "a:",
        "a: }",
        "}",
        "a: 1 {",
        ": 1",
        'a: "b',
        "a: &b",
        pytest.param("a {" * 5000, id="deep"),
    ],
)
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match="it "):
        parse(text)


def test_a_message_of_a_kind_that_its_url_names():
    text = "a { [type.googleapis.com/x.Y] { b: 1 } [x.y]: [2, 3] }"
    assert parse(text) == {"a": [{"[type.googleapis.com/x.Y]": [{"b": [1]}], "[x.y]": [2, 3]}]}
    with pytest.raises(ValueError, match="in the place of a value"):
        parse("a { [type.googleapis.com/x.Y")
