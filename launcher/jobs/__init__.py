"""Jobs: starting, watching and stopping them."""
