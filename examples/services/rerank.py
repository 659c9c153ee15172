"""Chooses the shortest of the texts that share most words with a question."""


def best(batch):
    """Returns the best text for each call, and all texts that were found."""
    results = []
    for call in batch:
        question = set(call["question"].lower().strip("?").split())
        ranked = sorted(
            call["found"],
            key=lambda text: (-len(question & set(text.lower().split())), len(text)),
        )
        results.append({"text": ranked[0], "rows": ranked})
    return results
