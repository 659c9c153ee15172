"""Requests to services with stages: their routes, the values between workers, and their replies."""
