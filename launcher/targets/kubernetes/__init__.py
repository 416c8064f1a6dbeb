"""The targets kubernetes-application and kubernetes-session, with their keys of config.yaml."""
