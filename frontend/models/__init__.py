"""The models that the front end serves, the way of requests to their jobs, and the jobs' health."""
