"""Several models in one job: each has its own queue, and takes its turns in the slot of the job."""
