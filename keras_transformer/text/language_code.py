"""Codes of languages, such as `de`, and their symbols, such as `>>fra<<`."""

import re

from keras_transformer.errors import UserError

# The symbol that a source sentence of a Marian model begins with. It is for bytes in Python and for
# RE2, TensorFlow's expressions: in both, `\s` is white space of ASCII alone.
LANGUAGE_SYMBOL = r">>[^<>\s]+<<"


def check_language_code(code: str | None, name: str = "target_lang") -> None:
    """Raises `UserError` for `German`, `DE` or `jp`, which no tool knows; None is any language.

    Args:
        code: the code.
        name: the argument that it was given in, which the message names.

    Example:
        >>> check_language_code("pt-br")
    """
    if code is None or _is_code(code):
        return
    language, *rest = re.split("([-_])", code.lower())
    meant = "".join([_OF_COUNTRIES.get(language, language), *rest])
    hint = f"did you mean {meant}?" if _is_code(meant) else "two or three small letters"
    raise UserError(f"{name} must be a language code such as de: found {code!r}; {hint}")


def _is_code(code):
    match = re.fullmatch(r"([a-z]{2,3})([-_][a-zA-Z0-9]+)*", code, re.ASCII)
    return bool(match) and (len(match[1]) == 3 or match[1] in _ISO_639_1)


def short_code(code: str) -> str:
    """The language of a code, by its ISO 639-1 code if it has one, without script and region.

    Example:
        >>> short_code("fra_Latn"), short_code("fre"), short_code("pt-br"), short_code("ace_Latn")
        ('fr', 'fr', 'pt', 'ace')
    """
    language = re.split("[-_]", code.lower())[0]
    return _SHORT_CODES.get(language, language)


# The codes of ISO 639-1, with former ones, and that of M2M100 for Northern Sotho, ns.
_TWO_LETTERS = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu "
    "hy hz ia id ie ig ii ik in io is it iu iw ja ji jv jw ka kg ki kj kk kl km kn ko kr ks ku kv "
    "kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mo mr ms mt my na nb nd ne ng nl nn no nr "
    "ns nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so "
    "sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh "
    "yi yo za zh zu"
)
_ISO_639_1 = frozenset(_TWO_LETTERS.split())
# Codes of countries that are no codes of languages.
_OF_COUNTRIES = {
    "by": "be",
    "cn": "zh",
    "cz": "cs",
    "dk": "da",
    "gb": "en",
    "gr": "el",
    "jp": "ja",
    "ua": "uk",
    "us": "en",
    "vn": "vi",
}

# The two letters of a language (ISO 639-1) by its three (ISO 639-3), with individual languages that
# stand for a macrolanguage, such as Modern Standard Arabic.
_PAIRS = (
    "afr:af aka:ak als:sq amh:am ara:ar arb:ar asm:as aym:ay ayr:ay aze:az azj:az "
    "bak:ba bam:bm bel:be ben:bn bod:bo bos:bs bul:bg cat:ca ces:cs cmn:zh cym:cy dan:da deu:de "
    "dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fas:fa fij:fj fin:fi fra:fr "
    "ful:ff fuv:ff gaz:om gla:gd gle:ga glg:gl grn:gn guj:gu hat:ht hau:ha heb:he hin:hi "
    "hrv:hr hun:hu hye:hy ibo:ig ind:id isl:is ita:it jav:jv jpn:ja kan:kn kas:ks kat:ka "
    "kau:kr kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kmr:ku knc:kr kon:kg kor:ko kur:ku "
    "lao:lo lav:lv lim:li lin:ln lit:lt ltz:lb lug:lg lvs:lv mal:ml mar:mr mkd:mk mlg:mg "
    "mlt:mt mon:mn mri:mi msa:ms mya:my nep:ne nld:nl nno:nn nob:nb nor:no npi:ne nya:ny "
    "oci:oc ori:or orm:om ory:or pan:pa pbt:ps pes:fa plt:mg pol:pl por:pt prs:fa pus:ps "
    "que:qu quy:qu ron:ro run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl smo:sm sna:sn "
    "snd:sd som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv swh:sw "
    "tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti tsn:tn tso:ts tuk:tk tur:tr twi:tw "
    "uig:ug ukr:uk urd:ur uzb:uz uzn:uz vie:vi wol:wo xho:xh ydd:yi yid:yi yor:yo zho:zh "
    "zsm:ms zul:zu "
    # The codes of libraries (ISO 639-2/B), and former ones of two letters.
    "alb:sq arm:hy baq:eu bur:my chi:zh cze:cs dut:nl fre:fr geo:ka ger:de gre:el ice:is mac:mk "
    "mao:mi may:ms per:fa rum:ro slo:sk tib:bo wel:cy in:id iw:he ji:yi jw:jv mo:ro"
)
_SHORT_CODES = dict(pair.split(":") for pair in _PAIRS.split())
