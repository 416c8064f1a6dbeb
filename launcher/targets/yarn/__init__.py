"""The targets yarn-application and yarn-session, with their keys of config.yaml."""
