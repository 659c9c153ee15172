"""The user's workflow files: reading, selection, upload of local inputs."""
