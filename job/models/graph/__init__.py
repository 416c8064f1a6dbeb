"""What the graph of a model proves about the rows of its outputs: a pass over its operators, without any values."""
