"""Stages: concerns around reading and answering, a file each; `job.operators` lists them in their order."""
