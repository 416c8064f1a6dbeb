"""What a process has of its machine, and the processes around it."""
