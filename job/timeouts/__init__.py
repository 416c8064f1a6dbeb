"""The time limit of calls (`inferenceTimeout`); `job.ways` hangs it on."""
