"""Kinds of inputs beside arrays, each a class derived from `input_kind.InputKind`; `job.ways` lists them."""
