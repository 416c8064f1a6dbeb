"""What the functions of the data path need of Flink, and the form in which requests travel through it."""
