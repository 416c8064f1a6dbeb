"""The models that the front end serves, and the way of a request to them."""
