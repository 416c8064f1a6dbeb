"""Post-processing: filters change the outputs of a record; `job.ways` hangs them on."""
