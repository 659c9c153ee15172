"""Finds the texts that share most words with a question."""

TEXTS = [
    "Paris is the capital of France. It lies on the river Seine.",
    "Rome is the capital of Italy. It lies on the river Tiber.",
    "The Seine flows through Paris to the sea.",
    "The Alps are the highest mountains of Europe.",
    "Vienna is the capital of Austria. It lies on the Danube.",
]


def words(text):
    """Returns the words of a text, without their case."""
    return {word.strip(".,?!").lower() for word in text.split()}


class Search:
    """Loads the texts once a replica."""

    def __init__(self):
        self.texts = [(text, words(text)) for text in TEXTS]

    def compute(self, batch):
        """Returns the k best texts for each question."""
        return [self.found(words(call["question"]), call["k"]) for call in batch]

    def found(self, wanted, k):
        """Returns the k texts that share most words with a question."""
        ranked = sorted(self.texts, key=lambda text: -len(wanted & text[1]))
        return [text for text, _ in ranked[:k]]
