"""The configuration: `config.yaml`, environment variables, and what the original called them."""
