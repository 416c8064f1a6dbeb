"""The processes of the front end: the first one, further ones, and the hot restart that replaces them."""
