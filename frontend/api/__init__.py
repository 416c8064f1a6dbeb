"""What the front end answers: one subpackage or module per API."""
