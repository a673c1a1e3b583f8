"""The words of the built-in corpus, English beside German, with the forms the grammar needs."""

from typing import NamedTuple

# A finite verb's forms by agreement: "I", "he", "we" are all that both languages need here.
Forms = tuple[str, str, str]
FIRST_SINGULAR, THIRD_SINGULAR, ANY_PLURAL = range(3)
# Genders index the columns of every declension table; the plural is the fourth column.
MASCULINE, FEMININE, NEUTER, PLURAL = range(4)
NOMINATIVE, ACCUSATIVE, DATIVE = range(3)


class Pair(NamedTuple):
    """A word or phrase whose form never changes."""

    english: str = ""
    german: str = ""


class Noun(NamedTuple):
    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: int
    weak: bool = False  # n-declension: "der Junge", but "den Jungen", "dem Jungen"


class Adjective(NamedTuple):
    english: str
    stem: str


class Verb(NamedTuple):
    english: str
    english_third: str
    english_past: str
    prefix: str  # of a separable verb: "auf" in "aufmachen"
    infinitive: str  # without the prefix
    third: str
    participle: str
    perfect: str = "haben"


class Auxiliary(NamedTuple):
    """A finite verb that another word completes: "has to" / "muss", "is" / "ist"."""

    statement: Forms  # "wants to"
    helper: Forms  # carries negation and question: "does"
    rest: str  # what follows the helper: "want to"
    finite: Forms


class Determiner(NamedTuple):
    english: str
    forms: list[list[str]]  # by case, by gender
    endings: list[list[str]]  # of the adjective that follows, by case, by gender


class Matrix(NamedTuple):
    """The verb of a clause that governs another: "knows" + "that" / "weiß" + "dass"."""

    english: Forms
    german: Forms
    conjunction: Pair


class Conjunction(NamedTuple):
    english: str
    german: str
    mark: str  # the English comma; in German there is always one


class NounClass(NamedTuple):
    """Nouns that suit the same verbs and the same adjectives."""

    nouns: list[Noun]
    adjectives: list[Adjective]


OLD, NEW = Adjective("old", "alt"), Adjective("new", "neu")
SMALL, BIG = Adjective("small", "klein"), Adjective("big", "groß")
BEAUTIFUL, EXPENSIVE = Adjective("beautiful", "schön"), Adjective("expensive", "teur")
RED, GREEN = Adjective("red", "rot"), Adjective("green", "grün")
WHITE, BLACK = Adjective("white", "weiß"), Adjective("black", "schwarz")
YOUNG, CLEVER = Adjective("young", "jung"), Adjective("clever", "klug")
FRIENDLY, FAMOUS = Adjective("friendly", "freundlich"), Adjective("famous", "berühmt")
POLITE, RICH = Adjective("polite", "höflich"), Adjective("rich", "reich")
LONG, SHORT = Adjective("long", "lang"), Adjective("short", "kurz")
COLD, HOT, FRESH = Adjective("cold", "kalt"), Adjective("hot", "heiß"), Adjective("fresh", "frisch")

# Subjects and objects are different people, to avoid clauses such as "the man helps the man".
ACTORS = NounClass(
    [
        Noun("man", "men", "Mann", "Männer", MASCULINE),
        Noun("woman", "women", "Frau", "Frauen", FEMININE),
        Noun("boy", "boys", "Junge", "Jungen", MASCULINE, weak=True),
        Noun("girl", "girls", "Mädchen", "Mädchen", NEUTER),
        Noun("teacher", "teachers", "Lehrer", "Lehrer", MASCULINE),
        Noun("doctor", "doctors", "Arzt", "Ärzte", MASCULINE),
        Noun("student", "students", "Student", "Studenten", MASCULINE, weak=True),
        Noun("farmer", "farmers", "Bauer", "Bauern", MASCULINE, weak=True),
    ],
    [CLEVER, FRIENDLY, POLITE, FAMOUS, RICH],
)
PARTNERS = NounClass(
    [
        Noun("child", "children", "Kind", "Kinder", NEUTER),
        Noun("guest", "guests", "Gast", "Gäste", MASCULINE),
        Noun("waitress", "waitresses", "Kellnerin", "Kellnerinnen", FEMININE),
        Noun("neighbor", "neighbors", "Nachbar", "Nachbarn", MASCULINE, weak=True),
        Noun("colleague", "colleagues", "Kollege", "Kollegen", MASCULINE, weak=True),
    ],
    [CLEVER, FRIENDLY, POLITE, FAMOUS, RICH],
)
FAMILY = NounClass(
    [
        Noun("mother", "mothers", "Mutter", "Mütter", FEMININE),
        Noun("father", "fathers", "Vater", "Väter", MASCULINE),
        Noun("sister", "sisters", "Schwester", "Schwestern", FEMININE),
        Noun("brother", "brothers", "Bruder", "Brüder", MASCULINE),
        Noun("uncle", "uncles", "Onkel", "Onkel", MASCULINE),
    ],
    [CLEVER, FRIENDLY, POLITE, FAMOUS, RICH],
)
BOOK = Noun("book", "books", "Buch", "Bücher", NEUTER)
BELONGINGS = NounClass(
    [
        BOOK,
        Noun("key", "keys", "Schlüssel", "Schlüssel", MASCULINE),
        Noun("lamp", "lamps", "Lampe", "Lampen", FEMININE),
        Noun("picture", "pictures", "Bild", "Bilder", NEUTER),
        Noun("umbrella", "umbrellas", "Regenschirm", "Regenschirme", MASCULINE),
        Noun("chair", "chairs", "Stuhl", "Stühle", MASCULINE),
        Noun("bag", "bags", "Tasche", "Taschen", FEMININE),
        Noun("hat", "hats", "Hut", "Hüte", MASCULINE),
    ],
    [OLD, NEW, SMALL, BIG, BEAUTIFUL, EXPENSIVE],
)
CLOTHES = NounClass(
    [
        Noun("sweater", "sweaters", "Pullover", "Pullover", MASCULINE),
        Noun("coat", "coats", "Mantel", "Mäntel", MASCULINE),
        Noun("shirt", "shirts", "Hemd", "Hemden", NEUTER),
        Noun("jacket", "jackets", "Jacke", "Jacken", FEMININE),
    ],
    [OLD, NEW, BEAUTIFUL, EXPENSIVE, RED, GREEN, WHITE, BLACK],
)
MACHINES = NounClass(
    [
        Noun("car", "cars", "Auto", "Autos", NEUTER),
        Noun("bicycle", "bicycles", "Fahrrad", "Fahrräder", NEUTER),
        Noun("boat", "boats", "Boot", "Boote", NEUTER),
        Noun("clock", "clocks", "Uhr", "Uhren", FEMININE),
    ],
    [OLD, NEW, SMALL, BIG, EXPENSIVE, RED, GREEN, WHITE, BLACK],
)
FOOD = NounClass(
    [
        Noun("apple", "apples", "Apfel", "Äpfel", MASCULINE),
        Noun("egg", "eggs", "Ei", "Eier", NEUTER),
        Noun("cake", "cakes", "Kuchen", "Kuchen", MASCULINE),
        Noun("potato", "potatoes", "Kartoffel", "Kartoffeln", FEMININE),
    ],
    [SMALL, BIG, FRESH],
)
ANIMALS = NounClass(
    [
        Noun("horse", "horses", "Pferd", "Pferde", NEUTER),
        Noun("dog", "dogs", "Hund", "Hunde", MASCULINE),
        Noun("cat", "cats", "Katze", "Katzen", FEMININE),
        Noun("bird", "birds", "Vogel", "Vögel", MASCULINE),
    ],
    [OLD, YOUNG, SMALL, BIG, BEAUTIFUL, WHITE, BLACK],
)
OPENABLE = NounClass(
    [
        Noun("door", "doors", "Tür", "Türen", FEMININE),
        Noun("window", "windows", "Fenster", "Fenster", NEUTER),
        Noun("suitcase", "suitcases", "Koffer", "Koffer", MASCULINE),
        Noun("box", "boxes", "Kiste", "Kisten", FEMININE),
    ],
    [OLD, NEW, SMALL, BIG, GREEN, WHITE, BLACK],
)
TEXTS = NounClass(
    [
        Noun("letter", "letters", "Brief", "Briefe", MASCULINE),
        Noun("story", "stories", "Geschichte", "Geschichten", FEMININE),
        Noun("poem", "poems", "Gedicht", "Gedichte", NEUTER),
        BOOK,
    ],
    [NEW, LONG, SHORT, BEAUTIFUL],
)
ROOMS = NounClass(
    [
        Noun("kitchen", "kitchens", "Küche", "Küchen", FEMININE),
        Noun("office", "offices", "Büro", "Büros", NEUTER),
        Noun("house", "houses", "Haus", "Häuser", NEUTER),
    ],
    [OLD, NEW, SMALL, BIG, BEAUTIFUL],
)
PLACES = NounClass(
    [
        Noun("city", "cities", "Stadt", "Städte", FEMININE),
        Noun("village", "villages", "Dorf", "Dörfer", NEUTER),
        Noun("library", "libraries", "Bibliothek", "Bibliotheken", FEMININE),
        Noun("park", "parks", "Park", "Parks", MASCULINE),
        Noun("hotel", "hotels", "Hotel", "Hotels", NEUTER),
        Noun("museum", "museums", "Museum", "Museen", NEUTER),
        Noun("garden", "gardens", "Garten", "Gärten", MASCULINE),
    ],
    [OLD, NEW, SMALL, BIG, BEAUTIFUL],
)
# Without plural and article: the strong adjective endings of the singular.
DRINKS = NounClass(
    [
        Noun("water", "", "Wasser", "", NEUTER),
        Noun("milk", "", "Milch", "", FEMININE),
        Noun("coffee", "", "Kaffee", "", MASCULINE),
        Noun("tea", "", "Tee", "", MASCULINE),
    ],
    [COLD, HOT, FRESH],
)
GOODS = [BELONGINGS, CLOTHES, MACHINES, FOOD, ANIMALS]

TRADE = [
    Verb("buy", "buys", "bought", "", "kaufen", "kauft", "gekauft"),
    Verb("sell", "sells", "sold", "", "verkaufen", "verkauft", "verkauft"),
    Verb("bring along", "brings along", "brought along", "mit", "bringen", "bringt", "mitgebracht"),
]
SEARCHING = [Verb("look for", "looks for", "looked for", "", "suchen", "sucht", "gesucht")]
# Nobody wants to lose something: these verbs and the next ones take no modal verbs.
FINDING = [
    Verb("find", "finds", "found", "", "finden", "findet", "gefunden"),
    Verb("lose", "loses", "lost", "", "verlieren", "verliert", "verloren"),
]
NEEDING = [Verb("need", "needs", "needed", "", "brauchen", "braucht", "gebraucht")]
OPENING = [
    Verb("open", "opens", "opened", "auf", "machen", "macht", "aufgemacht"),
    Verb("close", "closes", "closed", "zu", "machen", "macht", "zugemacht"),
]
DRESSING = [
    Verb("wear", "wears", "wore", "", "tragen", "trägt", "getragen"),
    Verb("take off", "takes off", "took off", "aus", "ziehen", "zieht", "ausgezogen"),
]
REPAIRING = [Verb("repair", "repairs", "repaired", "", "reparieren", "repariert", "repariert")]
EATING = [Verb("eat", "eats", "ate", "", "essen", "isst", "gegessen")]
DRINKING = [Verb("drink", "drinks", "drank", "", "trinken", "trinkt", "getrunken")]
WRITING = [Verb("write", "writes", "wrote", "", "schreiben", "schreibt", "geschrieben")]
TIDYING = [
    Verb("tidy up", "tidies up", "tidied up", "auf", "räumen", "räumt", "aufgeräumt"),
    Verb("clean", "cleans", "cleaned", "", "putzen", "putzt", "geputzt"),
]
MEETING = [
    Verb("invite", "invites", "invited", "ein", "laden", "lädt", "eingeladen"),
    Verb("pick up", "picks up", "picked up", "ab", "holen", "holt", "abgeholt"),
    Verb("call", "calls", "called", "an", "rufen", "ruft", "angerufen"),
    Verb("visit", "visits", "visited", "", "besuchen", "besucht", "besucht"),
]
HELPING = [
    Verb("help", "helps", "helped", "", "helfen", "hilft", "geholfen"),
    Verb("thank", "thanks", "thanked", "", "danken", "dankt", "gedankt"),
]
GIVING = [
    Verb("give", "gives", "gave", "", "geben", "gibt", "gegeben"),
    Verb("show", "shows", "showed", "", "zeigen", "zeigt", "gezeigt"),
    Verb("send", "sends", "sent", "", "schicken", "schickt", "geschickt"),
]
WAITING = [Verb("wait", "waits", "waited", "", "warten", "wartet", "gewartet")]
THINKING = [
    Verb("think", "thinks", "thought", "nach", "denken", "denkt", "nachgedacht"),
    Verb("talk", "talks", "talked", "", "sprechen", "spricht", "gesprochen"),
]
RESTING = [
    Verb("sleep", "sleeps", "slept", "", "schlafen", "schläft", "geschlafen"),
    Verb("work", "works", "worked", "", "arbeiten", "arbeitet", "gearbeitet"),
    Verb("dance", "dances", "danced", "", "tanzen", "tanzt", "getanzt"),
]
RISING = [
    Verb("get up", "gets up", "got up", "auf", "stehen", "steht", "aufgestanden", "sein"),
    Verb("leave", "leaves", "left", "weg", "gehen", "geht", "weggegangen", "sein"),
]
GOING = [
    Verb("go", "goes", "went", "", "gehen", "geht", "gegangen", "sein"),
    Verb("drive", "drives", "drove", "", "fahren", "fährt", "gefahren", "sein"),
]
STATES = [
    Pair("tired", "müde"),
    Pair("sick", "krank"),
    Pair("hungry", "hungrig"),
    Pair("happy", "glücklich"),
]

IS = Auxiliary(("am", "is", "are"), ("am", "is", "are"), "", ("bin", "ist", "sind"))
WAS = Auxiliary(("was", "was", "were"), ("was", "was", "were"), "", ("war", "war", "waren"))
WILL = Auxiliary(("will",) * 3, ("will",) * 3, "", ("werde", "wird", "werden"))
CAN = Auxiliary(("can",) * 3, ("can",) * 3, "", ("kann", "kann", "können"))
SHOULD = Auxiliary(("should",) * 3, ("should",) * 3, "", ("sollte", "sollte", "sollten"))
DO, DID = ("do", "does", "do"), ("did",) * 3
WANTS = Auxiliary(("want to", "wants to", "want to"), DO, "want to", ("will", "will", "wollen"))
HAS_TO = Auxiliary(("have to", "has to", "have to"), DO, "have to", ("muss", "muss", "müssen"))
COULD = Auxiliary(
    ("was able to", "was able to", "were able to"),
    ("was", "was", "were"),
    "able to",
    ("konnte", "konnte", "konnten"),
)
WANTED = Auxiliary(("wanted to",) * 3, DID, "want to", ("wollte", "wollte", "wollten"))
HAD_TO = Auxiliary(("had to",) * 3, DID, "have to", ("musste", "musste", "mussten"))
PERFECT = {"haben": ("habe", "hat", "haben"), "sein": ("bin", "ist", "sind")}

THAT, WHETHER = Pair("that", "dass"), Pair("whether", "ob")
KNOWING = [
    Matrix(("know", "knows", "know"), ("weiß", "weiß", "wissen"), THAT),
    Matrix(("believe", "believes", "believe"), ("glaube", "glaubt", "glauben"), THAT),
    Matrix(("say", "says", "say"), ("sage", "sagt", "sagen"), THAT),
    Matrix(("am sure", "is sure", "are sure"), ("bin sicher", "ist sicher", "sind sicher"), THAT),
]
WONDERING = [
    Matrix(
        ("do not know", "does not know", "do not know"),
        ("weiß nicht", "weiß nicht", "wissen nicht"),
        WHETHER,
    ),
]
CONJUNCTIONS = [Conjunction("because", "weil", ""), Conjunction("although", "obwohl", ",")]

# No "every day": under a negation its scope would be ambiguous.
HABITUAL_TIMES = [
    Pair("in the morning", "am Morgen"),
    Pair("in the evening", "am Abend"),
    Pair("on Sundays", "sonntags"),
    Pair("in summer", "im Sommer"),
    Pair("in winter", "im Winter"),
]
PAST_TIMES = [
    Pair("yesterday", "gestern"),
    Pair("last week", "letzte Woche"),
    Pair("last year", "letztes Jahr"),
]
FUTURE_TIMES = [
    Pair("today", "heute"),
    Pair("tomorrow", "morgen"),
    Pair("this evening", "heute Abend"),
    Pair("next week", "nächste Woche"),
]
# In the dative plural, after "vor" and "in".
UNITS = [
    Pair("minutes", "Minuten"),
    Pair("hours", "Stunden"),
    Pair("days", "Tagen"),
    Pair("weeks", "Wochen"),
]


def table(*rows: str) -> list[list[str]]:
    """Reads a table with a row for each case and a column for each gender; "-" is empty."""
    return [[cell.strip("-") for cell in row.split()] for row in rows]


RELATIVE_PRONOUNS = table("der die das die", "den die das die", "dem der dem denen")
WEAK = table("e e e en", "en e e en", "en en en en")
MIXED = table("er e es en", "en e es en", "en en en en")
STRONG = table("er e es e", "en e es e", "em er em en")


def article_like_ein(english: str, stem: str) -> Determiner:
    endings = table("- e - e", "en e - e", "em er em en")
    return Determiner(english, [[stem + ending for ending in row] for row in endings], MIXED)


def this(english: str) -> Determiner:
    forms = table(
        "dieser diese dieses diese", "diesen diese dieses diese", "diesem dieser diesem diesen"
    )
    return Determiner(english, forms, WEAK)


THE = Determiner("the", table("der die das die", "den die das die", "dem der dem den"), WEAK)
THIS, THESE = this("this"), this("these")
A, NO_A, NO_ANY = (
    article_like_ein(*pair) for pair in [("a", "ein"), ("a", "kein"), ("any", "kein")]
)
POSSESSIVES = [
    article_like_ein(*pair)
    for pair in [("my", "mein"), ("our", "unser"), ("his", "sein"), ("her", "ihr")]
]
BARE = Determiner("", table("- - - -", "- - - -", "- - - -"), STRONG)

ONES = [
    Pair("one", "ein"),
    Pair("two", "zwei"),
    Pair("three", "drei"),
    Pair("four", "vier"),
    Pair("five", "fünf"),
    Pair("six", "sechs"),
    Pair("seven", "sieben"),
    Pair("eight", "acht"),
    Pair("nine", "neun"),
]
TEENS = [
    Pair("ten", "zehn"),
    Pair("eleven", "elf"),
    Pair("twelve", "zwölf"),
    Pair("thirteen", "dreizehn"),
    Pair("fourteen", "vierzehn"),
    Pair("fifteen", "fünfzehn"),
    Pair("sixteen", "sechzehn"),
    Pair("seventeen", "siebzehn"),
    Pair("eighteen", "achtzehn"),
    Pair("nineteen", "neunzehn"),
]
TENS = [
    Pair("twenty", "zwanzig"),
    Pair("thirty", "dreißig"),
    Pair("forty", "vierzig"),
    Pair("fifty", "fünfzig"),
    Pair("sixty", "sechzig"),
    Pair("seventy", "siebzig"),
    Pair("eighty", "achtzig"),
    Pair("ninety", "neunzig"),
]
# Two to ninety-nine; German names the ones first: "dreiundvierzig".
NUMBERS = [*ONES[1:], *TEENS, *TENS] + [
    Pair(f"{ten.english}-{one.english}", f"{one.german}und{ten.german}")
    for ten in TENS
    for one in ONES
]
