"""A predictor inside other programs: data frames, Flink jobs, batch files and other engines."""
