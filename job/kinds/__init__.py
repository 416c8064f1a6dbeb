"""Inputs that the model does not take as they are: kinds beside arrays (`input_kind.InputKind`), and other dtypes."""
