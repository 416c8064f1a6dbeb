"""The command `cluster-serving quickstart`: a first model, from nothing to predictions."""
