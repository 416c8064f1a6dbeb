"""Changes of a job that runs: generations side by side, and the controller that makes changes by itself."""
