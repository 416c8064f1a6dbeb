"""Steps of a start, a file each; `jobs.preparation` lists them in their order."""
