"""The end of a training that nobody wants any more."""


class TrainingCancelledError(Exception):
    """The action was cancelled; raised out of the trainer at its next step."""
