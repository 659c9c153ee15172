"""Types of the API that has OpenAI's paths and shapes, below ``/openai/v1``."""
