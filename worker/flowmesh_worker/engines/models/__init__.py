"""``model.import``: models from outside become Hugging Face directories of safe files."""
