"""What operators do to rows, whatever engine they are of."""
