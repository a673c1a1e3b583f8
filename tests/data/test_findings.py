"""What a corpus holds: its lengths, and a corpus with faults that were put there."""

import random
import re
from collections import Counter

import numpy as np
import pytest

from keras_transformer.data import BuiltinPairs, SentencePairs, TextPairs
from keras_transformer.data.findings import BadPair, check_pairs, format_findings
from keras_transformer.data.pair_rules import HeldOut, PairRules, Usual
from keras_transformer.data.sources import Block
from keras_transformer.errors import UserError
from keras_transformer.options.cleaning import RULES, CleaningOptions

CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопярстувщхыз")
FRENCH = [
    ("A man rides a horse.", "Un homme monte à cheval dans la forêt."),
    ("Two dogs are playing.", "Deux chiens jouent ensemble dans le jardin."),
]


class Pairs(SentencePairs):
    """Pairs from a list, in blocks of 100."""

    description = "a list"

    def __init__(self, pairs):
        self.pairs = pairs

    def blocks(self):
        for first in range(0, len(self.pairs), 100):
            sides = zip(*self.pairs[first : first + 100], strict=True)
            source, target = ([text.encode() for text in side] for side in sides)
            yield Block(source, target, first=first + 1)


def findings_of(pairs, **given):
    return check_pairs(pairs, PairRules(CleaningOptions(), Usual.of(pairs), **given))


def with_faults():
    """1,000 sound pairs and 20 of each fault in a random order; each with the rule that it breaks.

    Sound pairs have a number and a placeholder each, which faults may change.
    """
    chance = random.Random(0)
    unique = list(dict.fromkeys(BuiltinPairs("train", 2000)))[:1100]
    numbered = [(f"{10 + n} {a} %s", f"{10 + n} {b} %s") for n, (a, b) in enumerate(unique)]
    sound, others = numbered[:1000], numbered[1000:1020]
    faults = {
        "empty": lambda a, b: (a, " "),
        "encoding": lambda a, b: (a, f"{b} fÃ¼r"),
        "letters": lambda a, b: (re.sub("[a-zA-Z]", "", a), b),
        "long": lambda a, b: (f"{a} " * 40, f"{b} " * 40),
        "ratio": lambda a, b: (a, f"{b} " * 5),
        "copy": lambda a, b: (a, a.upper()),
        "placeholder": lambda a, b: (a, b.replace("%s", "")),
        "number": lambda a, b: (a, "7" + b),
        "script": lambda a, b: (
            a,
            b.lower().translate(CYRILLIC).replace("%\N{CYRILLIC SMALL LETTER ES}", "%s"),
        ),
        "duplicate": lambda a, b: (a, b),
    }
    rows = [("", pair) for pair in sound]
    for rule, fault in faults.items():
        rows += [(rule, fault(*pair)) for pair in chance.sample(sound, 20)]
    rows += [("overlap", (a, f"{b} ja")) for a, b in others]
    chance.shuffle(rows)
    seen = set()
    for row, (rule, pair) in enumerate(rows):  # of two equal pairs, the second is the duplicate
        if rule in ("", "duplicate"):
            rows[row] = ("duplicate" if pair in seen else "", pair)
        seen.add(pair)
    return rows, HeldOut.of([Pairs(others)])


def test_each_rule_finds_what_was_planted_for_it_and_no_sound_pair():
    rows, held_out = with_faults()
    planted = Counter(rule for rule, _ in rows if rule)
    found = findings_of(Pairs([pair for _, pair in rows]), held_out=held_out)
    assert planted == dict.fromkeys({*RULES} - {"language"}, 20)
    assert found.broken == planted


def test_what_is_kept_is_what_was_sound():
    rows, held_out = with_faults()
    pairs, kept = Pairs([pair for _, pair in rows]), []
    rules = PairRules(CleaningOptions(), Usual.of(pairs), held_out=held_out)
    check_pairs(pairs, rules, lambda *sides: kept.append(tuple(map(bytes.decode, sides))))
    assert kept == [pair for rule, pair in rows if not rule]


def test_lengths_are_counted():
    pairs = Pairs([("one two  three", "ein"), ("four", "vier Worte"), ("four", "")])
    findings = findings_of(pairs)
    assert findings.words.tolist() == [[3, 1, 1], [1, 2, 0]]
    assert findings.characters.tolist() == [[14, 4, 4], [3, 10, 0]]
    assert findings.different_lines == (2, 3)
    assert (findings.pairs, findings.suspicious, findings.broken["empty"]) == (3, 1, 1)


def test_findings_are_tables():
    pairs = Pairs([("one two three", "eins zwei drei")] * 3 + [("four", "four")])
    lines = format_findings(findings_of(pairs), CleaningOptions(max_words=7)).splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["4", "pairs", "source", "target"],
        ["words", "10", "10"],
        ["characters", "43", "46"],
        ["different", "lines", "2", "2"],
    ]
    assert lines[7].split() == ["words", "of", "a", "line,", "longest", "3", "3"]
    [copies] = (line for line in lines if line.startswith("copy"))
    assert copies.split()[:3] == ["copy", "1", "25.00%"]
    [long] = (line for line in lines if line.startswith("long "))
    assert long.endswith("a side has more than 7 words or 1,000 characters")
    assert lines[-1].split()[:3] == ["together", "3", "75.00%"]
    assert max(map(len, lines)) <= 100


def test_examples_name_their_place(tmp_path):
    for name, lines in (("a.en", "Save\n\nOpen\n"), ("a.de", "Sichern\nJa\nOpen\n")):
        (tmp_path / name).write_text(lines)
    findings = findings_of(TextPairs(tmp_path / "a.en", tmp_path / "a.de"))
    assert findings.examples == [
        BadPair("empty", f"{tmp_path}/a.en:2", "", "Ja"),
        BadPair("copy", f"{tmp_path}/a.en:3", "Open", "Open"),
    ]


def test_examples_of_giant_lines_are_short(tmp_path):
    for name, line in (("a.en", "a dog " * 100_000), ("a.de", "Hund")):
        (tmp_path / name).write_text(f"{line}\n")
    [example] = findings_of(TextPairs(tmp_path / "a.en", tmp_path / "a.de")).examples
    assert (example.rule, example.target) == ("long", "Hund")
    assert example.source.startswith("a dog a dog") and len(example.source) < 1100
    assert example.source.endswith(" ... (599,999 characters)")


def test_examples_are_a_sample_of_the_whole_corpus():
    pairs = Pairs([(f"word {n}", f"word {n}") for n in range(2000)])
    examples = findings_of(pairs).examples
    numbers = [int(example.place.removeprefix("pair ")) for example in examples]
    assert len({*numbers}) == 20
    assert 600 < np.mean(numbers) < 1400
    assert [f"word {number - 1}" for number in numbers] == [each.source for each in examples]


def test_a_corpus_without_pairs_is_refused():
    with pytest.raises(UserError, match=r"^a list has no pair of sentences"):
        findings_of(Pairs([]))
