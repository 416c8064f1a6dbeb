"""What makes a small request over HTTP cheap: a cache of parsed heads, and routes without the layers of Starlette."""
