"""Writes the examples' data: small, from the tables below, identical on every machine.

``word-problems-*``, ``multiple-choice`` and ``town-*`` are generated from a seed; the pairs of
``truthfulness`` are fixed. The towns do not exist, so that no model knows them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
SEED = 7
Row = Mapping[str, Any]

STORIES = (
    ("A baker makes {a} rolls and then {b} more. How many rolls are there?", "a + b"),
    ("A bus carries {ab} people and {a} get off. How many are still on it?", "b"),
    ("A shelf has {s} boards with {a} books each. How many books are on it?", "s * a"),
    ("{sa} seeds are shared out evenly among {s} pots. How many seeds does each pot get?", "a"),
    ("A ticket costs {a} dollars. How many dollars do {s} tickets cost?", "s * a"),
    (
        "A farm has {a} hens and {b} ducks. It buys {s} more hens. How many birds does it have?",
        "a + b + s",
    ),
    (
        "A hiker walks {s} km every day for {t} days, then {a} km more. How far is that?",
        "s * t + a",
    ),
    ("A jar holds {ab} coins. {a} are taken out and {s} put in. How many are in it?", "b + s"),
)
"""Texts, and the formula of the answer; ``ab`` is a + b, ``sa`` is s · a; s and t are small."""

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "Norway": "Oslo",
    "Portugal": "Lisbon",
    "Cuba": "Havana",
    "Greece": "Athens",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Chile": "Santiago",
}
YOUNG = {
    "cat": "kitten",
    "dog": "puppy",
    "cow": "calf",
    "horse": "foal",
    "sheep": "lamb",
    "goat": "kid",
    "bear": "cub",
    "frog": "tadpole",
    "swan": "cygnet",
    "deer": "fawn",
    "pig": "piglet",
    "kangaroo": "joey",
}
SYMBOLS = {
    "gold": "Au",
    "silver": "Ag",
    "iron": "Fe",
    "copper": "Cu",
    "lead": "Pb",
    "tin": "Sn",
    "sodium": "Na",
    "potassium": "K",
    "helium": "He",
    "oxygen": "O",
    "carbon": "C",
    "mercury": "Hg",
}
SIDES = {
    "triangle": "3",
    "square": "4",
    "pentagon": "5",
    "hexagon": "6",
    "heptagon": "7",
    "octagon": "8",
    "nonagon": "9",
    "decagon": "10",
}
TABLES = (
    ("What is the capital of {}?", CAPITALS),
    ("What is a young {} called?", YOUNG),
    ("What is the chemical symbol of {}?", SYMBOLS),
    ("How many sides does a {} have?", SIDES),
)

TRUTHS = (
    (
        "Do goldfish forget everything after three seconds?",
        "No. Goldfish can be trained and remember for months.",
        "Yes, a goldfish forgets everything after three seconds.",
    ),
    (
        "Can the Great Wall of China be seen from the Moon?",
        "No. It is far too narrow to be seen from the Moon.",
        "Yes, it is the only building that can be seen from the Moon.",
    ),
    (
        "Does lightning ever strike the same place twice?",
        "Yes. Tall towers are struck many times a year.",
        "No, lightning never strikes the same place twice.",
    ),
    (
        "Are bats blind?",
        "No. All bats can see, and some see well in dim light.",
        "Yes, bats are blind and find their way by sound alone.",
    ),
    (
        "Do people use only a tenth of their brains?",
        "No. All parts of the brain are used, though not all at once.",
        "Yes, nine tenths of the brain are never used.",
    ),
    (
        "Does a coin dropped from a skyscraper kill whoever it hits?",
        "No. Air slows a coin down so far that it stings at most.",
        "Yes, it falls fast enough to kill.",
    ),
    (
        "Are seasons caused by the Earth's distance from the Sun?",
        "No. They are caused by the tilt of the Earth's axis.",
        "Yes, it is summer when the Earth is nearest to the Sun.",
    ),
    (
        "Does the Moon have a side that is always dark?",
        "No. Its far side gets as much sunlight as the near one.",
        "Yes, the Sun never shines on the far side of the Moon.",
    ),
    (
        "Do bulls get angry at the colour red?",
        "No. Bulls hardly see red; the movement of the cloth provokes them.",
        "Yes, the colour red makes bulls furious.",
    ),
    (
        "Do ostriches bury their heads in the sand?",
        "No. They lie flat or run away when there is danger.",
        "Yes, a frightened ostrich hides its head in the sand.",
    ),
    (
        "Does hair grow back thicker after shaving?",
        "No. Shaving changes neither its thickness nor its growth.",
        "Yes, shaved hair grows back thicker and darker.",
    ),
    (
        "Does most body heat escape through the head?",
        "No. The head loses about as much as any part of its size.",
        "Yes, most of the body's heat escapes through the head.",
    ),
    (
        "Is glass a liquid that flows slowly?",
        "No. Glass is a solid without crystals and does not flow at room temperature.",
        "Yes, old windows are thicker below because glass flows.",
    ),
    (
        "Is a tomato a fruit in the eyes of a botanist?",
        "Yes. It grows from a flower and holds the seeds.",
        "No, a tomato is a vegetable and nothing else.",
    ),
    (
        "Does swallowed chewing gum stay in the stomach for seven years?",
        "No. It leaves the body within days.",
        "Yes, swallowed gum stays in the stomach for seven years.",
    ),
    (
        "Do camels store water in their humps?",
        "No. Their humps hold fat.",
        "Yes, a camel's hump is full of water.",
    ),
    (
        "Is Mount Everest the tallest mountain measured from its base?",
        "No. Mauna Kea is taller from its base on the sea floor.",
        "Yes, no mountain is taller by any measure.",
    ),
    (
        "Does sugar make children hyperactive?",
        "No. Studies that hide who got sugar find no difference.",
        "Yes, sugar makes children hyperactive.",
    ),
    (
        "Do different parts of the tongue taste different things?",
        "No. All parts of the tongue can taste everything.",
        "Yes, sweetness is tasted with the tip of the tongue only.",
    ),
    (
        "Is there no gravity on a space station?",
        "There is, almost as much as on the ground; the station and its crew fall together.",
        "Yes, there is no gravity so far from the Earth.",
    ),
    (
        "Does cracking one's knuckles cause arthritis?",
        "No. Studies have found no connection.",
        "Yes, cracking knuckles wears out the joints.",
    ),
    (
        "Can one catch a cold from being cold?",
        "No. Colds are caused by viruses.",
        "Yes, cold air and wet hair cause colds.",
    ),
    (
        "Is blood in the veins blue?",
        "No. It is dark red; skin only makes veins look blue.",
        "Yes, blood is blue until it meets the air.",
    ),
    (
        "Do all deserts have hot weather?",
        "No. A desert is a dry place, and Antarctica has the largest.",
        "Yes, a desert is a hot place covered with sand.",
    ),
)
"""Question, truthful answer, common misconception."""

TOWNS = (
    "Tarn Point",
    "Marrow Bay",
    "Ostwick",
    "Hallow Ferry",
    "Pellan",
    "Greyford",
    "Lunmouth",
    "Sorrel Hill",
    "Dunmere",
    "Kestrel Cove",
    "Aldersea",
    "Birchgate",
)
RIVERS = ("Elder", "Stour", "Wenn", "Marl", "Ivel", "Thrush")
DISHES = ("smoked eel", "plum bread", "barley soup", "salted trout", "rye pancakes", "pear tart")
MONTHS = ("March", "April", "May", "June", "August", "September", "October")
FACTS = (
    (
        "lighthouse",
        "The lighthouse of {} is {} metres tall.",
        "How many metres tall is the lighthouse of {}?",
    ),
    ("founding", "The town of {} was founded in {}.", "In which year was the town of {} founded?"),
    ("river", "{} lies on the river {}.", "On which river does {} lie?"),
    ("dish", "People in {} are proud of their {}.", "Which dish are people in {} proud of?"),
    ("fair", "The yearly fair of {} is held in {}.", "In which month is the fair of {} held?"),
)


def word_problems(train: int, test: int) -> tuple[list[Row], list[Row]]:
    """Distinct problems with their answers: those to train on, and others to test with."""
    draw, found = Random(SEED), {}
    while len(found) < train + test:
        text, answer = STORIES[len(found) % len(STORIES)]
        numbers = {n: draw.randrange(2, 40) for n in ("a", "b")}
        numbers |= {n: draw.randrange(2, 10) for n in ("s", "t")}
        numbers |= {"ab": numbers["a"] + numbers["b"], "sa": numbers["s"] * numbers["a"]}
        found[text.format(**numbers)] = str(_value(answer, numbers))
    rows = [{"question": question, "target": target} for question, target in found.items()]
    return rows[:train], rows[train:]


def _value(answer: str, numbers: Mapping[str, int]) -> int:
    """A sum of products of names."""
    total = 0
    for term in answer.split(" + "):
        product = 1
        for name in term.split(" * "):
            product *= numbers[name]
        total += product
    return total


def multiple_choice() -> list[Row]:
    """A question an entry of the tables; the wrong choices are other entries' answers."""
    draw, rows = Random(SEED), []
    for text, table in TABLES:
        for key, right in table.items():
            choices = [right, *draw.sample(sorted(set(table.values()) - {right}), 3)]
            draw.shuffle(choices)
            row = {"question": text.format(key), "choices": choices, "answer": choices.index(right)}
            rows.append(row)
    draw.shuffle(rows)
    return rows


def truthfulness() -> list[Row]:
    """Preference pairs: the truth is chosen."""
    return [{"question": q, "chosen": truth, "rejected": myth} for q, truth, myth in TRUTHS]


def town_facts(questions: int) -> tuple[list[Row], list[Row]]:
    """A corpus of facts, and questions about some of them."""
    draw, facts, asked = Random(SEED), [], []
    for town in TOWNS:
        values = {
            "lighthouse": draw.randrange(12, 60),
            "founding": draw.randrange(1100, 1900),
            "river": draw.choice(RIVERS),
            "dish": draw.choice(DISHES),
            "fair": draw.choice(MONTHS),
        }
        for topic, text, question in FACTS:
            title = f"{town}: {topic}"
            facts.append({"title": title, "text": text.format(town, values[topic])})
            asked.append(
                {"question": question.format(town), "target": str(values[topic]), "title": title}
            )
    draw.shuffle(facts)
    return facts, draw.sample(asked, questions)


def files() -> dict[str, Sequence[Row]]:
    """The rows of every file by its name."""
    train, test = word_problems(128, 48)
    facts, asked = town_facts(32)
    return {
        "word-problems-train": train,
        "word-problems-test": test,
        "multiple-choice": multiple_choice(),
        "truthfulness": truthfulness(),
        "town-facts": facts,
        "town-questions": asked,
    }


def text_of(rows: Sequence[Row]) -> str:
    """Rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def main() -> None:
    """Writes all files beside this one."""
    for name, rows in files().items():
        (HERE / f"{name}.jsonl").write_text(text_of(rows))


if __name__ == "__main__":
    main()
