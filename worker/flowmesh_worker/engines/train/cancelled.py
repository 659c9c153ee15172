"""The exception that ends a cancelled training."""


class TrainingCancelledError(Exception):
    """The action was cancelled; raised from the trainer at its next step."""
