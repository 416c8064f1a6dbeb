"""The configuration of a job: the keys of `config.yaml`, its file, and the options made of it."""
