"""Batch axes: where the tensors of a model have the batch, proven by computing; and batches along them."""
