"""The wire formats of Analytics Zoo and BigDL Cluster Serving."""
