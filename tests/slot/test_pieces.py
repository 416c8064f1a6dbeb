"""Answers in pieces, from a slot without Flink."""

from tests.support.fixtures import both_modes


def test_pieces_arrive_as_they_are_made(served, tmp_path):
    both_modes.pieces_arrive_as_they_are_made(served, tmp_path)
