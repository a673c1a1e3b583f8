"""The built-in corpus: grammatical, unambiguous, split by sentence, repeatable."""

import re
from itertools import islice, product
from random import Random

import pytest

from keras_transformer.data.builtin import grammar, lexicon
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.data.builtin.grammar import (
    AFFIRMATIVE,
    KEIN,
    NICHT,
    Build,
    Choice,
    Clause,
    Complement,
    NounPhrase,
    Predicate,
    Values,
)
from keras_transformer.data.builtin.lexicon import ACCUSATIVE, DATIVE, NOMINATIVE, Pair
from keras_transformer.errors import UserError

TABLES = vars(lexicon).values()
NOUN_CLASSES = [table for table in TABLES if isinstance(table, lexicon.NounClass)]
AUXILIARIES = [table for table in TABLES if isinstance(table, lexicon.Auxiliary)]
VERBS = [
    word
    for table in TABLES
    if isinstance(table, list)
    for word in table
    if isinstance(word, lexicon.Verb)
]


@pytest.fixture(scope="module")
def sample() -> list[tuple[str, str]]:
    return list(builtin_pairs("train", 20_000, seed=1))


def noun(english):
    [found] = {n for c in NOUN_CLASSES for n in c.nouns if n.english == english}
    return found


def verb(english):
    [found] = [verb for verb in VERBS if verb.english == english]
    return found


def the(english, case, adjective=None):
    return grammar.singular(case, lexicon.THE, adjective, noun(english))


def clause(subject, tense, verb_english, complement=None, polarity=AFFIRMATIVE, time=None):
    predicate = Predicate(polarity, tense(verb(verb_english)), complement or Complement())
    return Clause(subject, predicate, time or Pair())


# ------------------------------------------------------------------------------- word order

MAN = the("man", NOMINATIVE)
I = NounPhrase("I", "ich", lexicon.FIRST_SINGULAR)  # noqa: E741
THE_DOOR = grammar.direct(the("door", ACCUSATIVE))
A_HAT = grammar.direct(grammar.singular(ACCUSATIVE, lexicon.A, None, noun("hat")))
NO_HAT = grammar.direct(grammar.singular(ACCUSATIVE, lexicon.NO_A, None, noun("hat")))
TO_THE_MUSEUM = grammar.prepositional(Pair("to", "in"), the("museum", ACCUSATIVE))
YESTERDAY, TODAY = Pair("yesterday", "gestern"), Pair("today", "heute")
BECAUSE, ALTHOUGH = lexicon.CONJUNCTIONS
KNOW, DO_NOT_KNOW = lexicon.KNOWING[0], lexicon.WONDERING[0]


def with_auxiliary(auxiliary):
    return lambda verb: grammar.infinitive_with(auxiliary, verb)


opens = clause(MAN, grammar.present, "open", THE_DOOR)
opened = clause(MAN, grammar.past, "open", THE_DOOR)
wants_to_open = clause(MAN, with_auxiliary(lexicon.WANTS), "open", THE_DOOR)
slept = clause(I, grammar.past, "sleep")
tired = grammar.group(lexicon.WAS, "tired", "müde")
i_was_tired = Clause(I, Predicate(AFFIRMATIVE, tired))
who_was_tired = grammar.subject_relative(MAN, Predicate(AFFIRMATIVE, tired))


@pytest.mark.parametrize(
    ("pair", "english", "german"),
    [
        (grammar.plain(opens), "The man opens the door.", "Der Mann macht die Tür auf."),
        (grammar.plain(opened), "The man opened the door.", "Der Mann hat die Tür aufgemacht."),
        (
            grammar.plain(wants_to_open),
            "The man wants to open the door.",
            "Der Mann will die Tür aufmachen.",
        ),
        (
            grammar.fronted(YESTERDAY, opened),
            "Yesterday, the man opened the door.",
            "Gestern hat der Mann die Tür aufgemacht.",
        ),
        (
            grammar.plain(opened._replace(time=YESTERDAY)),
            "The man opened the door yesterday.",
            "Der Mann hat gestern die Tür aufgemacht.",
        ),
        (grammar.asked(opens), "Does the man open the door?", "Macht der Mann die Tür auf?"),
        (
            grammar.with_reason(BECAUSE, slept, opens),
            "I slept because the man opens the door.",
            "Ich habe geschlafen, weil der Mann die Tür aufmacht.",
        ),
        (
            grammar.reason_first(ALTHOUGH, i_was_tired, opened),
            "Although I was tired, the man opened the door.",
            "Obwohl ich müde war, hat der Mann die Tür aufgemacht.",
        ),
        (
            grammar.governed(I, KNOW, opened),
            "I know that the man opened the door.",
            "Ich weiß, dass der Mann die Tür aufgemacht hat.",
        ),
        (
            grammar.governed(I, DO_NOT_KNOW, wants_to_open),
            "I do not know whether the man wants to open the door.",
            "Ich weiß nicht, ob der Mann die Tür aufmachen will.",
        ),
        (
            grammar.plain(opens._replace(subject=who_was_tired)),
            "The man who was tired opens the door.",
            "Der Mann, der müde war, macht die Tür auf.",
        ),
        (
            grammar.asked(slept._replace(subject=who_was_tired)),
            "Did the man who was tired sleep?",
            "Hat der Mann, der müde war, geschlafen?",
        ),
        (
            grammar.plain(
                clause(
                    MAN,
                    grammar.past,
                    "find",
                    grammar.object_relative(
                        "that", ACCUSATIVE, the("key", ACCUSATIVE), I, grammar.past(verb("sell"))
                    ),
                )
            ),
            "The man found the key that I sold.",
            "Der Mann hat den Schlüssel gefunden, den ich verkauft habe.",
        ),
        (
            grammar.plain(
                clause(
                    MAN,
                    grammar.present,
                    "call",
                    grammar.object_relative(
                        "whom", DATIVE, the("waitress", ACCUSATIVE), I, grammar.past(verb("help"))
                    ),
                )
            ),
            "The man calls the waitress whom I helped.",
            "Der Mann ruft die Kellnerin an, der ich geholfen habe.",
        ),
        (
            grammar.plain(
                clause(
                    MAN,
                    grammar.present,
                    "show",
                    grammar.two_objects(the("neighbor", DATIVE), the("hat", ACCUSATIVE)),
                )
            ),
            "The man shows the neighbor the hat.",
            "Der Mann zeigt dem Nachbarn den Hut.",
        ),
        (
            grammar.plain(clause(MAN, grammar.present, "open", THE_DOOR, NICHT, TODAY)),
            "The man does not open the door today.",
            "Der Mann macht heute die Tür nicht auf.",
        ),
        (
            grammar.plain(clause(MAN, grammar.past, "go", TO_THE_MUSEUM, NICHT)),
            "The man did not go to the museum.",
            "Der Mann ist nicht ins Museum gegangen.",
        ),
        (
            grammar.plain(clause(MAN, with_auxiliary(lexicon.CAN), "buy", NO_HAT, KEIN)),
            "The man cannot buy a hat.",
            "Der Mann kann keinen Hut kaufen.",
        ),
        (
            grammar.plain(clause(I, with_auxiliary(lexicon.HAS_TO), "buy", A_HAT)),
            "I have to buy a hat.",
            "Ich muss einen Hut kaufen.",
        ),
    ],
)
def test_word_order(pair, english, german):
    assert pair == (english, german)


# ------------------------------------------------------------------------------- agreement


@pytest.mark.parametrize(
    ("determiner", "number", "english", "nominative", "accusative", "dative"),
    [
        ("THE", 1, "the old {}", "der alte Hut", "den alten Hut", "dem alten Hut"),
        ("A", 1, "an old {}", "ein alter Hut", "einen alten Hut", "einem alten Hut"),
        ("THE", 1, "the old {}", "die alte Tür", "die alte Tür", "der alten Tür"),
        ("A", 1, "an old {}", "eine alte Tür", "eine alte Tür", "einer alten Tür"),
        ("THIS", 1, "this old {}", "dieses alte Buch", "dieses alte Buch", "diesem alten Buch"),
        ("NO_A", 1, "an old {}", "kein altes Buch", "kein altes Buch", "keinem alten Buch"),
        ("THE", 2, "the old {}", "die alten Hüte", "die alten Hüte", "den alten Hüten"),
        ("BARE", 2, "old {}", "alte Bücher", "alte Bücher", "alten Büchern"),
    ],
)
def test_articles_and_adjectives_agree(determiner, number, english, nominative, accusative, dative):
    words = {"Hut": "hat", "Hüte": "hat", "Tür": "door", "Buch": "book", "Bücher": "book"}
    thing = noun(words[nominative.split()[-1]])
    determiner = getattr(lexicon, determiner)
    for case, expected in enumerate([nominative, accusative, dative]):
        if number == 1:
            phrase = grammar.singular(case, determiner, lexicon.OLD, thing)
        else:
            phrase = grammar.plural(case, determiner, Pair(), lexicon.OLD, thing)
        name = thing.english if number == 1 else thing.english_plural
        assert (phrase.english, phrase.german) == (english.format(name), expected)


def test_drinks_without_article_have_strong_endings():
    drinks = {
        noun: grammar.singular(ACCUSATIVE, lexicon.BARE, lexicon.COLD, noun).german
        for noun in lexicon.DRINKS.nouns
    }
    assert list(drinks.values()) == [
        "kaltes Wasser",
        "kalte Milch",
        "kalten Kaffee",
        "kalten Tee",
    ]


def test_weak_nouns_change_in_the_singular():
    assert the("boy", NOMINATIVE).german == "der Junge"
    assert the("boy", ACCUSATIVE).german == "den Jungen"
    assert the("boy", DATIVE).german == "dem Jungen"


def test_in_and_article_contract():
    place = Pair("in", "in")
    assert grammar.after(place, the("park", DATIVE)).german == "im Park"
    assert grammar.after(place, the("park", ACCUSATIVE)).german == "in den Park"
    assert grammar.after(place, the("hotel", ACCUSATIVE)).german == "ins Hotel"
    assert grammar.after(place, the("city", DATIVE)).german == "in der Stadt"


def test_numbers_from_two_to_ninety_nine():
    german = dict(lexicon.NUMBERS)
    assert len(german) == 98
    assert german["forty-three"] == "dreiundvierzig"
    assert german["seventeen"] == "siebzehn"
    assert german["thirty-one"] == "einunddreißig"
    assert german["sixty-six"] == "sechsundsechzig"


# ------------------------------------------------------------------------------- every sentence


def test_sentences_are_well_written(sample):
    for pair in sample:
        for text in pair:
            assert text[0].isupper() and text[-1] in ".?" and text == text.strip(), text
            assert not re.search(r"  | [,.?]|,[,.?]|,\S", text), text
        assert pair[0][-1] == pair[1][-1]


def test_a_before_consonants_and_an_before_vowels(sample):
    for english, _ in sample:
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", english), english


def test_subordinate_clauses_end_in_their_finite_verb(sample):
    tenses = [grammar.present, grammar.past]
    groups = [tense(verb) for verb in VERBS for tense in tenses]
    finite = {form.split()[-1] for group in groups for form in group.final}
    finite |= {form for auxiliary in AUXILIARIES for form in auxiliary.finite}
    conjunctions = {"weil", "obwohl", "dass", "ob"}
    pronouns = {pronoun for row in lexicon.RELATIVE_PRONOUNS for pronoun in row}
    checked = 0
    for _, german in sample:
        after_relative = False  # there the main clause goes on, maybe with an article
        for index, part in enumerate(german[:-1].split(", ")):
            first = part.split()[0].lower()
            is_relative = index > 0 and first in pronouns and not after_relative
            if first in conjunctions or is_relative:
                assert part.split()[-1] in finite, german
                checked += 1
            after_relative = is_relative
    assert checked > len(sample) / 4


def test_verb_second_after_a_fronted_time(sample):
    verbs = [verb.third for verb in VERBS] + [verb.infinitive for verb in VERBS]
    verbs += [verb.infinitive.removesuffix("n") for verb in VERBS]
    verbs += [form for auxiliary in AUXILIARIES for form in auxiliary.finite]
    verbs += [form for forms in lexicon.PERFECT.values() for form in forms]
    times = [*lexicon.HABITUAL_TIMES, *lexicon.PAST_TIMES, *lexicon.FUTURE_TIMES]
    german_of = {time.english: time.german for time in times}
    checked = 0
    for english, german in sample:
        time = german_of.get(english.split(",")[0].lower().replace("sundays", "Sundays"))
        if time:
            assert german.lower().startswith(time.lower()), german
            assert german[len(time) :].split()[0] in verbs, german
            checked += 1
    assert checked > len(sample) / 20


def test_sentences_are_neither_tiny_nor_huge(sample):
    lengths = sorted(len(english.split()) for english, _ in sample)
    assert lengths[0] >= 2 and lengths[-1] <= 30
    assert lengths[len(lengths) // 20] >= 4 and lengths[-len(lengths) // 20] <= 20


# ------------------------------------------------------------------------------- one translation


def rules_below(rule):
    yield rule
    for part in getattr(rule, "rules", getattr(rule, "parts", ())):
        yield from rules_below(part)


def all_values(rule):
    if isinstance(rule, Values):
        yield from rule.values
    elif isinstance(rule, Choice):
        for option in rule.rules:
            yield from all_values(option)
    else:
        yield from (rule.build(*parts) for parts in product(*map(all_values, rule.parts)))


def draw_with_derivation(rule, random):
    """A value made of the first word of every list, and the choices that led to it."""
    if isinstance(rule, Values):
        return rule.values[0], 0
    if isinstance(rule, Choice):
        index = int(random() * len(rule.rules))
        value, derivation = draw_with_derivation(rule.rules[index], random)
        return value, (index, derivation)
    values, derivations = zip(
        *[draw_with_derivation(part, random) for part in rule.parts], strict=True
    )
    return rule.build(*values), derivations


def english_of(word):
    """The English form that tells words of one list apart."""
    if isinstance(word, grammar.VerbGroup):
        return word.statement
    return word and word.english


def test_count_is_the_number_of_values():
    for rule in [grammar.ACTOR, grammar.FAMILY_MEMBER, grammar.PAST.adverbials]:
        assert len({value.english for value in all_values(rule)}) == rule.count
    assert Build(str, Choice((1, Values("ab")), (2, Values("c"))), Values("de")).count == 6


def test_no_list_has_two_words_with_the_same_english():
    lists = {id(r): r.values for r in rules_below(grammar.SENTENCES) if isinstance(r, Values)}
    for words in lists.values():
        english = [english_of(word) for word in words]
        assert len(english) == len(set(english)), english


@pytest.mark.slow
def test_an_english_sentence_has_one_derivation():
    """With one word in each list, sentences repeat, and their derivation is always the same."""
    random = Random(0).random
    derivations, repeated = {}, 0
    for _ in range(60_000):
        (english, _), derivation = draw_with_derivation(grammar.SENTENCES, random)
        repeated += english in derivations
        assert derivations.setdefault(english, derivation) == derivation, english
    assert repeated > 1_000


def test_more_than_a_million_pairs():
    assert grammar.SENTENCES.count > 1_000_000
    random = Random(2).random
    drawn = [grammar.SENTENCES.draw(random) for _ in range(20_000)]
    assert len({pair.english for pair in drawn}) > 0.98 * len(drawn)


# ------------------------------------------------------------------------------- the interface


def test_pairs_are_distinct(sample):
    assert len(set(sample)) == len({english for english, _ in sample}) == 20_000


def test_every_sentence_is_in_exactly_one_split():
    counts = {"train": 5_000, "validation": 300, "test": 300}
    splits = [{e for e, _ in builtin_pairs(split, n, seed=3)} for split, n in counts.items()]
    random = Random(3).random
    for _ in range(3_000):
        english, _german = grammar.SENTENCES.draw(random)
        assert sum(english in split for split in splits) == 1, english


def test_splits_are_disjoint_whatever_the_seed(sample):
    train = {english for english, _ in sample}
    assert train & {english for english, _ in builtin_pairs("train", 2_000, seed=2)}
    for split in ("validation", "test"):
        assert not train & {english for english, _ in builtin_pairs(split, 500, seed=2)}


def test_the_seed_decides_pairs_and_order():
    first = list(builtin_pairs("train", 50, seed=7))
    assert list(builtin_pairs("train", 50, seed=7)) == first
    assert list(islice(builtin_pairs("train", 1_000, seed=7), 50)) == first
    assert list(builtin_pairs("train", 50, seed=8)) != first


GOLDEN = [
    (
        "She drinks water in the evening, although we can wait for the guest.",
        "Sie trinkt am Abend Wasser, obwohl wir auf den Gast warten können.",
    ),
    (
        "Twelve women who are not hungry will write the letters tomorrow.",
        "Zwölf Frauen, die nicht hungrig sind, werden morgen die Briefe schreiben.",
    ),
    (
        "A girl has to bring along a chair that our uncle found.",
        "Ein Mädchen muss einen Stuhl mitbringen, den unser Onkel gefunden hat.",
    ),
]


def test_the_corpus_is_the_same_on_every_machine():
    assert list(builtin_pairs("train", 3, seed=14)) == GOLDEN


def test_mistakes_are_told_before_the_first_pair():
    with pytest.raises(UserError, match=r"train, validation, test.*'dev'"):
        builtin_pairs("dev", 10)
    with pytest.raises(UserError, match=r"num_pairs.*-1"):
        builtin_pairs("train", -1)
