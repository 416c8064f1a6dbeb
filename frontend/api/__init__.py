"""The APIs of the front end: one subpackage or module each."""
