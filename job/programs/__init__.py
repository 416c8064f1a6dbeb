"""Programs that the launcher runs in processes of their own: each loads a model, or asks a store."""
