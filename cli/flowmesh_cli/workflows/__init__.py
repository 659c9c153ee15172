"""Reads the user's workflow files and uploads their local inputs."""
