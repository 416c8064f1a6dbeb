"""A folder for the PYTHONPATH of a TaskManager, whose thread mode embeds Python in the JVM."""
