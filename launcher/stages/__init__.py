"""The keys of `config.yaml` for stages of the job (`connectors.stages`), a file for each stage."""
