"""Translates the messages of a program: those of a PO file of gettext that have no translation yet.

    python examples/translate_po.py MODEL_DIR INPUT.po OUTPUT.po

The translations are marked as fuzzy, so msgfmt leaves them out until a person has checked them.
PO files are read by polib: pip install polib.
"""

import sys
import warnings
from pathlib import Path

import polib  # type: ignore[import-untyped]

import keras_transformer as kt

try:
    model_dir, source, target = sys.argv[1:]
    if Path(target).exists():
        raise ValueError(f"{target} exists already: choose another name")
    Path(source).stat()  # polib would read the name of a missing file as a catalogue
    catalogue = polib.pofile(source)
    translator = kt.PlaceholderTranslator(kt.load(model_dir))
except (OSError, ValueError) as error:  # a kt.UserError is one
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")

entries = catalogue.untranslated_entries()
texts = [text for entry in entries for text in (entry.msgid, entry.msgid_plural)]
with warnings.catch_warnings():
    # It names the texts into which placeholders were put. All are to be checked anyway.
    warnings.simplefilter("ignore", kt.PlaceholderWarning)
    found = kt.translate_paragraphs(translator, texts, language="en")
translations = {text: best.text for text, [best] in zip(texts, found, strict=True)}

for entry in entries:
    singular, plural = translations[entry.msgid], translations[entry.msgid_plural]
    if entry.msgid_plural:
        # A language with one form for all numbers has the plural there.
        last = max(entry.msgstr_plural)
        entry.msgstr_plural = {n: plural if n or not last else singular for n in range(last + 1)}
    else:
        entry.msgstr = singular
    entry.fuzzy = True

catalogue.save(target)
print(f"{len(entries):,} messages translated: check those marked as fuzzy in {target}")
