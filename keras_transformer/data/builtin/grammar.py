"""The grammar of the built-in corpus: every derivation is an English sentence and its translation.

A derivation belongs to exactly one English sentence, so the German sentence is a function of the
English one, and the number of derivations is the number of pairs.
"""

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from keras_transformer.data.builtin import lexicon
from keras_transformer.data.builtin.lexicon import (
    ACCUSATIVE,
    ANY_PLURAL,
    DATIVE,
    FIRST_SINGULAR,
    NOMINATIVE,
    PLURAL,
    THIRD_SINGULAR,
    Adjective,
    Auxiliary,
    Conjunction,
    Determiner,
    Forms,
    Matrix,
    Noun,
    NounClass,
    Pair,
    Verb,
)

# --------------------------------------------------------------------------------------- rules
# A rule is a finite set of values: `count` is their number, `draw` picks one. `random` takes no
# arguments and returns a float in [0, 1).

Random = Callable[[], float]


class Values:
    """A rule that chooses among values with equal probability."""

    def __init__(self, values: Sequence[Any]):
        self.values = values
        self.count: int = len(values)

    def draw(self, random: Random) -> Any:
        return self.values[int(random() * self.count)]


class Choice:
    """A rule that chooses one of the given rules by weight, and draws a value from it."""

    def __init__(self, *options: tuple[float, "Rule"]):
        weights, self.rules = zip(*options, strict=True)
        self.cumulative = list(accumulate(weights))
        self.count: int = sum(rule.count for rule in self.rules)

    def draw(self, random: Random) -> Any:
        return self.rules[bisect(self.cumulative, random() * self.cumulative[-1])].draw(random)


class Build:
    """A rule that draws one value from each part and passes them to `build`."""

    def __init__(self, build: Callable, *parts: "Rule"):
        self.build = build
        self.parts = parts
        self.count: int = math.prod(part.count for part in parts)

    def draw(self, random: Random) -> Any:
        return self.build(*[part.draw(random) for part in self.parts])


Rule = Values | Choice | Build


def one_of(*rules: Rule) -> Rule:
    return Choice(*((1, rule) for rule in rules))


NOTHING = Values([Pair()])
NUMBERS = Values(lexicon.NUMBERS)


# --------------------------------------------------------------------------------------- phrases


# "nicht" negates a sentence about something definite; "kein" precedes an indefinite noun.
AFFIRMATIVE, NICHT, KEIN = "affirmative", "nicht", "kein"


class NounPhrase(NamedTuple):
    english: str
    german: str
    agreement: int
    gender: int | None = None  # None for pronouns


class VerbGroup(NamedTuple):
    """A verb in one tense: "opened", "did" + "open"; "macht" ... "auf", "hat" ... "aufgemacht"."""

    statement: Forms
    helper: Forms
    rest: str
    finite: Forms
    bracket: str  # closes a main clause
    final: Forms  # closes a subordinate clause


class Complement(NamedTuple):
    """The complement of a verb; German places it before or after "nicht", or after the verb."""

    english: str = ""
    objects: str = ""
    late: str = ""
    extraposed: str = ""


class Predicate(NamedTuple):
    polarity: str
    verb: VerbGroup
    complement: Complement = Complement()
    place: Pair = Pair()


class Clause(NamedTuple):
    subject: NounPhrase
    predicate: Predicate
    time: Pair = Pair()


def join(*words: str) -> str:
    return " ".join([word for word in words if word])


def determine(determiner: str, words: str) -> str:
    """The English determiner before its words: "a hat", but "an old hat"."""
    if determiner == "a" and words[0] in "aeiou":
        determiner = "an"
    return join(determiner, words)


def singular(
    case: int, determiner: Determiner, adjective: Adjective | None, noun: Noun
) -> NounPhrase:
    gender = noun.gender
    english, german = noun.english, noun.german
    if noun.weak and case != NOMINATIVE:
        german = noun.german_plural
    if adjective:
        english = f"{adjective.english} {english}"
        german = f"{adjective.stem}{determiner.endings[case][gender]} {german}"
    return NounPhrase(
        determine(determiner.english, english),
        join(determiner.forms[case][gender], german),
        THIRD_SINGULAR,
        gender,
    )


def plural(
    case: int, determiner: Determiner, number: Pair, adjective: Adjective | None, noun: Noun
) -> NounPhrase:
    english, german = noun.english_plural, noun.german_plural
    if case == DATIVE and german[-1] not in "ns":
        german += "n"
    if adjective:
        english = f"{adjective.english} {english}"
        german = f"{adjective.stem}{determiner.endings[case][PLURAL]} {german}"
    return NounPhrase(
        join(determiner.english, number.english, english),
        join(determiner.forms[case][PLURAL], number.german, german),
        ANY_PLURAL,
        PLURAL,
    )


def direct(noun: NounPhrase) -> Complement:
    return Complement(noun.english, noun.german)


def two_objects(dative: NounPhrase, accusative: NounPhrase) -> Complement:
    return Complement(
        f"{dative.english} {accusative.english}", f"{dative.german} {accusative.german}"
    )


def after(preposition: Pair, noun: NounPhrase) -> Pair:
    """A preposition and its noun phrase: "in the park" / "im Park"."""
    german = f"{preposition.german} {noun.german}"
    for full, short in [("in dem ", "im "), ("in das ", "ins ")]:
        if german.startswith(full):
            german = short + german.removeprefix(full)
    return Pair(f"{preposition.english} {noun.english}", german)


def prepositional(preposition: Pair, noun: NounPhrase) -> Complement:
    phrase = after(preposition, noun)
    return Complement(phrase.english, late=phrase.german)


# --------------------------------------------------------------------------------------- verbs


def each(change: Callable[[str], str], forms: Forms) -> Forms:
    first, second, third = map(change, forms)
    return first, second, third


def group(auxiliary: Auxiliary, english: str, german: str) -> VerbGroup:
    return VerbGroup(
        each(lambda form: f"{form} {english}", auxiliary.statement),
        auxiliary.helper,
        join(auxiliary.rest, english),
        auxiliary.finite,
        german,
        each(lambda form: f"{german} {form}", auxiliary.finite),
    )


def present(verb: Verb) -> VerbGroup:
    finite = (verb.infinitive.removesuffix("n"), verb.third, verb.infinitive)
    return VerbGroup(
        (verb.english, verb.english_third, verb.english),
        lexicon.DO,
        verb.english,
        finite,
        verb.prefix,
        each(lambda form: verb.prefix + form, finite),
    )


def past(verb: Verb) -> VerbGroup:
    """English simple past, German perfect."""
    perfect = Auxiliary(("",) * 3, lexicon.DID, "", lexicon.PERFECT[verb.perfect])
    return group(perfect, verb.english, verb.participle)._replace(
        statement=(verb.english_past,) * 3
    )


def infinitive_with(auxiliary: Auxiliary, verb: Verb) -> VerbGroup:
    return group(auxiliary, verb.english, verb.prefix + verb.infinitive)


# --------------------------------------------------------------------------------------- clauses


def finite_english(clause: Clause) -> str:
    verb, agreement = clause.predicate.verb, clause.subject.agreement
    if clause.predicate.polarity == AFFIRMATIVE:
        return verb.statement[agreement]
    return f"{verb.helper[agreement]} not {verb.rest}".replace("can not", "cannot")


def after_verb(clause: Clause) -> str:
    return join(
        clause.predicate.complement.english, clause.predicate.place.english, clause.time.english
    )


def statement(clause: Clause) -> str:
    return join(clause.subject.english, finite_english(clause), after_verb(clause))


def question(clause: Clause) -> str:
    verb = clause.predicate.verb
    helper = verb.helper[clause.subject.agreement]
    return join(helper, clause.subject.english, verb.rest, after_verb(clause))


def middle(clause: Clause) -> str:
    """The words between the two parts of the German verb."""
    predicate = clause.predicate
    return join(
        clause.time.german,
        predicate.place.german,
        predicate.complement.objects,
        "nicht" if predicate.polarity == NICHT else "",
        predicate.complement.late,
    )


def verb_second(clause: Clause, front: str | None = None) -> str:
    """A German main clause; with `front` before the verb (or nothing), the subject follows it."""
    verb, subject = clause.predicate.verb, clause.subject
    finite = verb.finite[subject.agreement]
    start = join(subject.german, finite) if front is None else join(front, finite, subject.german)
    return join(start, middle(clause), verb.bracket) + clause.predicate.complement.extraposed


def verb_final(clause: Clause) -> str:
    """A German subordinate clause, without its conjunction."""
    final = clause.predicate.verb.final[clause.subject.agreement]
    return join(clause.subject.german, middle(clause), final)


def relative_pronoun(case: int, head: NounPhrase) -> str:
    assert head.gender is not None, "a pronoun heads no relative clause"
    return lexicon.RELATIVE_PRONOUNS[case][head.gender]


def subject_relative(head: NounPhrase, predicate: Predicate) -> NounPhrase:
    """A relative clause whose subject is the head: "the man who is tired" / "der Mann, der ..."."""
    pronoun = relative_pronoun(NOMINATIVE, head)
    clause = Clause(NounPhrase("who", pronoun, head.agreement), predicate)
    return head._replace(
        english=f"{head.english} {statement(clause)}",
        german=f"{head.german}, {verb_final(clause)},",
    )


def object_relative(
    pronoun: str, case: int, head: NounPhrase, subject: NounPhrase, verb: VerbGroup
) -> Complement:
    """A relative clause whose object is the head; in German it stands after the whole main clause.

    "sold the book that I found" / "hat das Buch verkauft, das ich gefunden habe"
    """
    clause = Clause(subject, Predicate(AFFIRMATIVE, verb))
    return Complement(
        f"{head.english} {pronoun} {statement(clause)}",
        objects=head.german,
        extraposed=f", {relative_pronoun(case, head)} {verb_final(clause)}",
    )


# ------------------------------------------------------------------------ rules of noun phrases

# The determiners that fit a sentence of each polarity.
SINGULAR = {
    AFFIRMATIVE: [lexicon.THE, lexicon.A, lexicon.THIS, *lexicon.POSSESSIVES],
    NICHT: [lexicon.THE, lexicon.THIS, *lexicon.POSSESSIVES],
    KEIN: [lexicon.NO_A],
}
SEVERAL = {
    AFFIRMATIVE: [lexicon.THE, lexicon.THESE, *lexicon.POSSESSIVES, lexicon.BARE],
    NICHT: [lexicon.THE, lexicon.THESE, *lexicon.POSSESSIVES],
    KEIN: [lexicon.NO_ANY],
}
MASS = {**SINGULAR, AFFIRMATIVE: [lexicon.BARE], KEIN: [lexicon.NO_ANY]}


def words_of(noun_class: NounClass) -> tuple[Rule, Rule]:
    """Returns two rules: one for an adjective or none, one for a noun."""
    return Choice((3, Values([None])), (2, Values(noun_class.adjectives))), Values(noun_class.nouns)


def one(noun_class: NounClass, case: int, determiners: list[Determiner]) -> Rule:
    return Build(partial(singular, case), Values(determiners), *words_of(noun_class))


def many(
    noun_class: NounClass, case: int, determiners: list[Determiner], number: Rule = NOTHING
) -> Rule:
    return Build(partial(plural, case), Values(determiners), number, *words_of(noun_class))


def counted(noun_class: NounClass, case: int) -> Rule:
    return many(noun_class, case, [lexicon.THE, lexicon.BARE], NUMBERS)


def some(noun_class: NounClass, case: int, polarity: str) -> Rule:
    return Choice(
        (2, one(noun_class, case, SINGULAR[polarity])),
        (1, many(noun_class, case, SEVERAL[polarity])),
    )


def heads(noun_class: NounClass, case: int) -> Rule:
    """Noun phrases that a relative clause can restrict."""
    return Choice(
        (3, one(noun_class, case, [lexicon.THE, lexicon.A])),
        (1, many(noun_class, case, [lexicon.THE])),
        (1, counted(noun_class, case)),
    )


HE_SHE_THEY = [
    NounPhrase("he", "er", THIRD_SINGULAR),
    NounPhrase("she", "sie", THIRD_SINGULAR),
    NounPhrase("they", "sie", ANY_PLURAL),
]
I_WE = [NounPhrase("I", "ich", FIRST_SINGULAR), NounPhrase("we", "wir", ANY_PLURAL)]
PRONOUN = Values(HE_SHE_THEY + I_WE)
FAMILY_MEMBER = one(lexicon.FAMILY, NOMINATIVE, lexicon.POSSESSIVES)
ACTOR = Choice(
    (3, one(lexicon.ACTORS, NOMINATIVE, [lexicon.THE, lexicon.A, lexicon.THIS])),
    (1, many(lexicon.ACTORS, NOMINATIVE, [lexicon.THE, lexicon.THESE])),
    (0.7, counted(lexicon.ACTORS, NOMINATIVE)),
)
SUBJECT = Choice((6, ACTOR), (1, PRONOUN), (2, FAMILY_MEMBER))
SUBJECT_OF_QUESTION = Choice((6, ACTOR), (1, Values(HE_SHE_THEY)), (2, FAMILY_MEMBER))
# Joined clauses draw their subjects from different sets, so that nobody is named twice.
OUTER_SUBJECT = Choice((4, ACTOR), (1, PRONOUN))
INNER_SUBJECT = one_of(PRONOUN, FAMILY_MEMBER)


# ------------------------------------------------------------------------ rules of predicates


Tense = Callable[[Verb], VerbGroup]


class TimeFrame(NamedTuple):
    """The verb forms that fit a set of adverbials."""

    simple: list[Tense]
    modals: list[Tense]
    state: Auxiliary | None  # "is" in "is tired"
    adverbials: Rule


def span(english: str, german: str, number: Pair, unit: Pair) -> Pair:
    """A span of time: "two days ago" / "vor zwei Tagen"."""
    return Pair(
        english.format(f"{number.english} {unit.english}"),
        german.format(f"{number.german} {unit.german}"),
    )


def modals(*auxiliaries: Auxiliary) -> list[Tense]:
    return [partial(infinitive_with, auxiliary) for auxiliary in auxiliaries]


HABIT = TimeFrame([present], [], lexicon.IS, Values(lexicon.HABITUAL_TIMES))
PAST = TimeFrame(
    [past],
    modals(lexicon.COULD, lexicon.WANTED, lexicon.HAD_TO),
    lexicon.WAS,
    Choice(
        (2, Values(lexicon.PAST_TIMES)),
        (1, Build(partial(span, "{} ago", "vor {}"), NUMBERS, Values(lexicon.UNITS))),
    ),
)
FUTURE = TimeFrame(
    modals(lexicon.WILL),
    modals(lexicon.CAN, lexicon.SHOULD, lexicon.WANTS, lexicon.HAS_TO),
    None,
    Choice(
        (2, Values(lexicon.FUTURE_TIMES)),
        (1, Build(partial(span, "in {}", "in {}"), NUMBERS, Values(lexicon.UNITS))),
    ),
)
# The time frames of reasons for present and for past events.
REASON_NOW = FUTURE._replace(simple=[], state=lexicon.IS)
REASON_THEN = PAST._replace(simple=[])


class Theme(NamedTuple):
    """Verbs with the complements that suit them."""

    weight: int
    verbs: list[Verb]
    complement: Rule
    has_modals: bool = True
    has_place: bool = False


ALONE = Values([Complement()])
IN_PLACE = one_of(
    NOTHING,
    Build(
        partial(after, Pair("in", "in")),
        one(lexicon.PLACES, DATIVE, [lexicon.THE, lexicon.A, lexicon.THIS]),
    ),
)


def things(polarity: str) -> list[Theme]:
    """Themes of people who do something with things."""

    def objects(noun_class: NounClass) -> Rule:
        return Build(direct, some(noun_class, ACCUSATIVE, polarity))

    goods = one_of(*map(objects, lexicon.GOODS))
    if polarity == AFFIRMATIVE:
        numbered = one_of(*[counted(noun_class, ACCUSATIVE) for noun_class in lexicon.GOODS])
        goods = Choice((3, goods), (1, Build(direct, numbered)))
    drinks = Build(
        direct,
        Build(partial(singular, ACCUSATIVE), Values(MASS[polarity]), *words_of(lexicon.DRINKS)),
    )
    themes = [
        Theme(4, lexicon.TRADE, goods),
        Theme(1, lexicon.SEARCHING, goods),
        Theme(3, lexicon.FINDING, goods, has_modals=False, has_place=True),
        Theme(1, lexicon.NEEDING, goods, has_modals=False),
        Theme(3, lexicon.OPENING, objects(lexicon.OPENABLE)),
        Theme(2, lexicon.DRESSING, objects(lexicon.CLOTHES)),
        Theme(1, lexicon.REPAIRING, objects(lexicon.MACHINES)),
        Theme(1, lexicon.EATING, objects(lexicon.FOOD)),
        Theme(1, lexicon.DRINKING, drinks),
        Theme(1, lexicon.WRITING, objects(lexicon.TEXTS)),
        Theme(2, lexicon.TIDYING, objects(lexicon.ROOMS)),
    ]
    if polarity != KEIN:
        texts = some(lexicon.TEXTS, ACCUSATIVE, polarity)
        about = Build(partial(prepositional, Pair("about", "über")), texts)
        themes.append(Theme(2, lexicon.THINKING, about))
    return themes


def gifts(polarity: str) -> list[Theme]:
    gift = one_of(
        some(lexicon.BELONGINGS, ACCUSATIVE, polarity), some(lexicon.CLOTHES, ACCUSATIVE, polarity)
    )
    receiver = some(lexicon.PARTNERS, DATIVE, NICHT)
    return [Theme(3, lexicon.GIVING, Build(two_objects, receiver, gift))]


def people(polarity: str) -> list[Theme]:
    """Themes of people who do something alone or with others."""
    met = some(lexicon.PARTNERS, ACCUSATIVE, polarity)
    themes = [
        Theme(4, lexicon.MEETING, Build(direct, met)),
        Theme(2, lexicon.HELPING, Build(direct, some(lexicon.PARTNERS, DATIVE, polarity))),
    ]
    if polarity != KEIN:
        places = one(lexicon.PLACES, ACCUSATIVE, [lexicon.THE, lexicon.THIS])
        to_place = Build(partial(prepositional, Pair("to", "in")), places)
        themes += [
            Theme(1, lexicon.WAITING, Build(partial(prepositional, Pair("for", "auf")), met)),
            Theme(2, lexicon.RESTING, ALONE, has_place=True),
            Theme(1, lexicon.RISING, ALONE),
            Theme(2, lexicon.GOING, to_place),
        ]
    return themes


def everything(polarity: str) -> list[Theme]:
    return things(polarity) + gifts(polarity) + people(polarity)


def described() -> list[Theme]:
    """Themes about things and people that a relative clause describes."""
    wishes = modals(lexicon.WANTED, lexicon.HAD_TO)
    goods = one_of(*[heads(noun_class, ACCUSATIVE) for noun_class in lexicon.GOODS])
    met, helped = heads(lexicon.PARTNERS, ACCUSATIVE), heads(lexicon.PARTNERS, DATIVE)
    finding = lexicon.FINDING + lexicon.NEEDING

    def objects(pronoun: str, head: Rule, case: int, verbs: list[Verb], *tenses: Tense) -> Rule:
        relative = partial(object_relative, pronoun, case)
        return Build(relative, head, INNER_SUBJECT, verb_groups(verbs, tenses))

    found = objects("that", goods, ACCUSATIVE, finding, past)
    traded = objects("that", goods, ACCUSATIVE, lexicon.TRADE, past, *wishes)
    helped_too = objects("whom", met, DATIVE, lexicon.HELPING, past, *wishes)
    met_too = objects("whom", helped, ACCUSATIVE, lexicon.MEETING, past, *wishes)
    return [
        Theme(2, lexicon.TRADE, found),
        Theme(2, finding, traded, has_modals=False),
        Theme(2, lexicon.MEETING, helped_too),
        Theme(1, lexicon.HELPING, met_too),
    ]


def verb_groups(verbs: list[Verb], tenses: Sequence[Tense]) -> Rule:
    return Values([tense(verb) for tense in tenses for verb in verbs])


def predicate_of(theme: Theme, frame: TimeFrame, polarity: str) -> Rule:
    forms = [(2, frame.simple)]
    if theme.has_modals:
        forms.append((1, frame.modals))
    verb = Choice(
        *[(weight, verb_groups(theme.verbs, tenses)) for weight, tenses in forms if tenses]
    )
    place = IN_PLACE if theme.has_place and polarity == AFFIRMATIVE else NOTHING
    return Build(partial(Predicate, polarity), verb, theme.complement, place)


def predicates_of(themes: list[Theme], frame: TimeFrame, polarity: str = AFFIRMATIVE) -> Rule:
    return Choice(*[(theme.weight, predicate_of(theme, frame, polarity)) for theme in themes])


def predicates(themes: Callable[[str], list[Theme]], frame: TimeFrame) -> Rule:
    """Predicates of a time frame: affirmative, and negated by "nicht" or "kein"."""
    return Choice(
        *[
            (weight, predicates_of(themes(polarity), frame, polarity))
            for polarity, weight in [(AFFIRMATIVE, 12), (NICHT, 3), (KEIN, 2)]
        ]
    )


def states(frame: TimeFrame) -> Rule:
    """Rules of states: "is tired" / "ist müde", "was not tired" / "war nicht müde"."""
    assert frame.state is not None
    groups = Values([group(frame.state, *adjective) for adjective in lexicon.STATES])
    return Choice(
        *[
            (weight, Build(partial(Predicate, polarity), groups, ALONE, NOTHING))
            for polarity, weight in [(AFFIRMATIVE, 3), (NICHT, 1)]
        ]
    )


def people_and_states(frame: TimeFrame) -> Rule:
    return Choice((3, predicates(people, frame)), (1, states(frame)))


# --------------------------------------------------------------------------------- sentences


def sentence(english: str, german: str, mark: str = ".") -> Pair:
    """Adds a capital and a final mark; drops a relative clause's comma before another mark."""
    german = german.replace(",,", ",").removesuffix(",")
    return Pair(english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark)


def plain(clause: Clause) -> Pair:
    return sentence(statement(clause), verb_second(clause))


def fronted(time: Pair, clause: Clause) -> Pair:
    return sentence(f"{time.english}, {statement(clause)}", verb_second(clause, time.german))


def asked(clause: Clause) -> Pair:
    return sentence(question(clause), verb_second(clause, front=""), "?")


def with_reason(conjunction: Conjunction, main: Clause, reason: Clause) -> Pair:
    return sentence(
        f"{statement(main)}{conjunction.mark} {conjunction.english} {statement(reason)}",
        f"{verb_second(main)}, {conjunction.german} {verb_final(reason)}",
    )


def reason_first(conjunction: Conjunction, reason: Clause, main: Clause) -> Pair:
    return sentence(
        f"{conjunction.english} {statement(reason)}, {statement(main)}",
        f"{conjunction.german} {verb_final(reason)}, {verb_second(main, front='')}",
    )


def governed(subject: NounPhrase, matrix: Matrix, clause: Clause) -> Pair:
    """A clause that is the object of another: "I know that ..." / "Ich weiß, dass ..."."""
    english, german = matrix.english[subject.agreement], matrix.german[subject.agreement]
    return sentence(
        f"{subject.english} {english} {matrix.conjunction.english} {statement(clause)}",
        f"{subject.german} {german}, {matrix.conjunction.german} {verb_final(clause)}",
    )


def clauses(subject: Rule, predicate: Rule, time: Rule = NOTHING) -> Rule:
    return Build(Clause, subject, predicate, time)


def statements(frame: TimeFrame, subject: Rule, predicate: Rule) -> Rule:
    """Statements with the time in front, at the end, or left out."""
    return Choice(
        (3, Build(fronted, frame.adverbials, clauses(subject, predicate))),
        (2, Build(plain, clauses(subject, predicate, frame.adverbials))),
        (2, Build(plain, clauses(subject, predicate))),
    )


def sentences(frame: TimeFrame) -> Rule:
    """All sentences of one time frame, by kind."""
    anything = predicates(everything, frame)
    affirmed = predicates_of(everything(AFFIRMATIVE), frame)
    with_things = predicates(things, frame)
    any_time = one_of(NOTHING, frame.adverbials)

    actor = heads(lexicon.ACTORS, NOMINATIVE)
    known_for = one_of(states(HABIT), people_and_states(PAST))
    described_actor = Build(subject_relative, actor, known_for)
    with_described_object = clauses(OUTER_SUBJECT, predicates_of(described(), frame))

    conjunctions = Values(lexicon.CONJUNCTIONS)
    main = clauses(OUTER_SUBJECT, with_things, any_time)
    reason = clauses(INNER_SUBJECT, people_and_states(REASON_THEN if frame is PAST else REASON_NOW))

    known = clauses(INNER_SUBJECT, anything, any_time)
    wondered = clauses(INNER_SUBJECT, affirmed, any_time)

    kinds = [
        (6, statements(frame, SUBJECT, anything)),
        (1, Build(asked, clauses(SUBJECT_OF_QUESTION, affirmed, any_time))),
        (2, statements(frame, described_actor, with_things)),
        (1, Build(plain, with_described_object)),
        (1, Build(fronted, frame.adverbials, with_described_object)),
        (2, Build(with_reason, conjunctions, main, reason)),
        (1, Build(reason_first, conjunctions, reason, main)),
        (2, Build(governed, OUTER_SUBJECT, Values(lexicon.KNOWING), known)),
        (1, Build(governed, OUTER_SUBJECT, Values(lexicon.WONDERING), wondered)),
    ]
    if frame.state:
        kinds.append((1, statements(frame, SUBJECT, states(frame))))
    return Choice(*kinds)


SENTENCES = Choice((1, sentences(HABIT)), (2, sentences(PAST)), (2, sentences(FUTURE)))
