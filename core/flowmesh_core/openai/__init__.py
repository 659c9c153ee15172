"""OpenAI's API as FlowMesh accepts it: the parameters of requests, and the shape of errors."""
