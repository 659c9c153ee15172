"""Chooses the text that shares most words with a question; of equal ones the shortest."""


def words(text):
    """Returns the words of a text, without their case."""
    return {word.strip(".,?!").lower() for word in text.split()}


def best(batch):
    """Returns the best text for each call, and all texts that were found, the best first."""
    results = []
    for call in batch:
        wanted = words(call["question"])
        texts = [row["text"] for row in call["found"]]
        ranked = sorted(texts, key=lambda text: (-len(wanted & words(text)), len(text)))
        results.append({"text": ranked[0], "rows": ranked})
    return results
