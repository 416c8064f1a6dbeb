"""What a job carries to machines that have nothing of ours: interpreter, packages and model, as archives."""
