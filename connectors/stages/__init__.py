"""Stages: concerns around reading and answering, a file each; `job.topology` lists them in their order."""
