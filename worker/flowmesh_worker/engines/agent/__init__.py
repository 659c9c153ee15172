"""The engine ``llm.agent``: a model that works on rows with tools."""
