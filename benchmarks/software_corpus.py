"""Builds a corpus of software texts, English to German or French, from public Debian packages.

  python benchmarks/software_corpus.py --target_lang=de --output=software

It needs Debian with a mirror that /etc/apt names, and was run on Debian 12. It installs nothing:
290 MB of packages go to a folder in OUTPUT, and another run takes them from there. The corpus is
train, valid, test and test.docs, each one file a language. What test.docs has comes from documents
of which nothing is in the others. No English or translated sentence of valid, test and test.docs is
in train, in any case or punctuation.

The texts belong to their authors and translators, under the licence of each package
(debian/copyright): manpages-de GPL-3+, libreoffice-help-de mostly MPL-2.0, most programs GPL or
LGPL.
"""

import collections
import gzip
import hashlib
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polib  # type: ignore[import-untyped]
from absl import app, flags

flags.DEFINE_enum("target_lang", "de", ["de", "fr"], "target language")
flags.DEFINE_string("output", "software", "folder of the corpus")
flags.DEFINE_integer("held", 2000, "number of pairs of each of valid, test and test.docs")
FLAGS = flags.FLAGS

# A text, its translation, and their origin: "program:tar", "manual".
Triple = tuple[str, str, str]

# Message catalogues of programs. The packages wesnoth-* are campaigns of a game: fiction.
CATALOGUES = """
libreoffice-l10n-{lang} krita-l10n vlc-l10n wordpress-l10n phpmyadmin evolution-common
gnucash-common gramps tellico-data kate5-data kdevelop-data python3-django gcc-12-locales
binutils-common util-linux-locales systemd gnome-shell-common nautilus-data gnome-software-common
epiphany-browser-data evince-common totem-common rhythmbox-data gedit-common
gnome-control-center-data gnumeric-common darktable pidgin-data audacity-data konsole dolphin kmail
korganizer kaddressbook krusader okular kmymoney-common gimp-data coreutils bash tar grep sed
findutils wget procps psmisc man-db rsync e2fsprogs diffutils wesnoth-1.16-did wesnoth-1.16-dm
wesnoth-1.16-dw wesnoth-1.16-ei wesnoth-1.16-httt wesnoth-1.16-l wesnoth-1.16-low wesnoth-1.16-nr
wesnoth-1.16-sof wesnoth-1.16-sota wesnoth-1.16-sotbe wesnoth-1.16-thot wesnoth-1.16-tsg
wesnoth-1.16-ttb wesnoth-1.16-utbs
"""
HELP = "libreoffice-help-en-us libreoffice-help-{lang}"
# Documents that are translated as .po files of their source package.
SOURCES = "installation-guide developers-reference debian-reference git apt dpkg"
MANUALS = "manpages-{lang} manpages-{lang}-dev"
ENGLISH_MANUALS = """
manpages manpages-dev coreutils util-linux mount procps systemd udev e2fsprogs iproute2 findutils
grep sed tar gzip bash login passwd psmisc less groff-base man-db debianutils dpkg-dev diffutils
net-tools ftp cron wget bzip2 xz-utils cups-client bsdextrautils bsdutils fdisk openssh-client rsync
cpio hostname file
"""
# What test.docs is from: technical prose, messages, fiction.
HELD_OUT = {"document:apt", "program:gramps", "program:wesnoth-1.16-httt"}


def output_of(*command: str | Path, **options) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.decode(errors='replace')}")
    return done.stdout


class Packages:
    """Downloads packages with lists of its own, so that those of the machine stay as they are."""

    def __init__(self, folder: Path, lang: str):
        self.folder = folder
        for name in ("lists/partial", "cache/archives/partial", "debs", "sources"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        release = Path("/etc/os-release").read_text()
        [suite] = re.findall(r"^VERSION_CODENAME=\"?(\w+)", release, re.MULTILINE)
        origin = (
            f"[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror()} {suite} main"
        )
        (folder / "sources.list").write_text(f"deb {origin}\ndeb-src {origin}\n")
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "Acquire::Languages": f"en,{lang}",
            "APT::Sandbox::User": "root",
        }
        self.apt_get = ["apt-get", *(f"-o{name}={value}" for name, value in settings.items())]
        output_of(*self.apt_get, "update")

    def files(self, kind: str, name: str, *patterns: str) -> Path | None:
        """A folder with the files of a package that match the patterns; None without the package.

        Args:
            kind: what the files are, which names their folder; documents are in source packages.
        """
        folder, source = self.folder / kind / name, kind == "documents"
        if folder.exists():
            return folder
        archives = self.folder / ("sources" if source else "debs")
        action = ["source", "--download-only", "--only-source"] if source else ["download"]
        done = subprocess.run([*self.apt_get, *action, name], cwd=archives, capture_output=True)
        if done.returncode:
            print(f"without {name}: {done.stderr.decode().splitlines()[-1]}", file=sys.stderr)
            return None
        if source:
            tars = (file for file in archives.glob(f"{name}_*.tar.*") if file.suffix != ".asc")
            [file] = (tar for tar in tars if ".debian." not in tar.name)
            command: list[str | Path] = ["tar", "-xaf", file]
            data = None
        else:
            command = ["tar", "-x"]
            data = output_of("dpkg-deb", "--fsys-tarfile", next(archives.glob(f"{name}_*")))
        partial = folder.with_name(folder.name + ".partial")
        partial.mkdir(parents=True, exist_ok=True)
        # tar fails for a pattern that matches nothing; a package need not have all of them.
        command += ["-C", partial, "--wildcards", *patterns]
        subprocess.run(command, input=data, stderr=subprocess.DEVNULL, check=False)
        return partial.rename(folder)

    def descriptions(self, lang: str) -> dict[str, tuple[str, list[str]]]:
        """Title and paragraphs of the description of each package, by the English text's digest."""
        [index] = (self.folder / "lists").glob(f"*_Translation-{lang}*")
        text = output_of("/usr/lib/apt/apt-helper", "cat-file", index).decode(errors="replace")
        found = {}
        for record in text.split("\n\n"):
            digest = re.search(r"^Description-md5: (\w+)", record, re.MULTILINE)
            body = re.search(
                rf"^Description-{lang}: (.*?)\n((?: .*\n?)*)", record + "\n", re.MULTILINE
            )
            if digest and body:
                found[digest[1]] = body[1], paragraphs(body[2].splitlines())
        return found


def mirror() -> str:
    """The Debian mirror that /etc/apt names."""
    files = [*sorted(Path("/etc/apt/sources.list.d").glob("*")), Path("/etc/apt/sources.list")]
    text = "\n".join(file.read_text() for file in files if file.exists())
    for uri in re.findall(r"^(?:URIs:|deb(?:\s+\[.*?\])?)\s+(\S+)", text, re.MULTILINE):
        if "debian" in uri and "security" not in uri:
            return uri
    sys.exit("no Debian mirror found in /etc/apt")


def paragraphs(lines: list[str]) -> list[str]:
    """Paragraphs of a package's description, in which each item of a list is one."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == ".":
            found.append([])
        elif line.startswith("  "):
            found.append([re.sub(r"^[-*+o]\s+", "", line.strip())])
        else:
            found[-1].append(line.strip())
    return [" ".join(words) for words in found if words]


# Readers: each yields pairs of raw texts, with their origin.


def messages(file: Path, origin: str) -> Iterator[Triple]:
    """Pairs of a .mo or .po file; of a plural, its first form."""
    try:
        catalogue = polib.mofile(file) if file.suffix == ".mo" else polib.pofile(file)
    except (OSError, ValueError) as error:
        print(f"without {file}: {error}", file=sys.stderr)
        return
    entries = catalogue.translated_entries()
    for entry in sorted(entries, key=lambda entry: entry.msgid_with_context):
        # <PRIuMAX> stands for what differs between machines.
        if not re.search(r"<PRI\w+>", entry.msgid):
            yield entry.msgid, entry.msgstr or entry.msgstr_plural[0], origin


def read_programs(packages: Packages, lang: str) -> Iterator[Triple]:
    for name in CATALOGUES.format(lang=lang).split():
        if folder := packages.files(
            "programs", name, f"*/{lang}/LC_MESSAGES/*.mo", f"*/*{lang}_{lang.upper()}.mo"
        ):
            for file in sorted(folder.rglob("*.mo")):
                yield from messages(file, f"program:{name}")


def read_help(packages: Packages, lang: str) -> Iterator[Triple]:
    """Paragraphs of two HTML pages with the same id."""
    paragraph = re.compile(
        r'<(p|h[1-6])\s+id="((?:par|hd|tit)_id[^"]+)"[^>]*>(.*?)</\1>', re.DOTALL
    )

    def paragraphs_of(page: Path) -> list[tuple[str, str]]:
        """The id and the text of each paragraph."""
        return [(id, text) for _, id, text in paragraph.findall(page.read_text("utf-8", "replace"))]

    names = HELP.format(lang=lang).split()
    folders = [packages.files("help", name, "*/text/*.html") for name in names]
    english, other = (next(folder.rglob("text")) for folder in folders if folder)
    for page in sorted(english.rglob("*.html")):
        twin = other / page.relative_to(english)
        if twin.exists():
            targets = dict(paragraphs_of(twin))
            for id, source in paragraphs_of(page):
                if id in targets:
                    yield source, targets[id], "help"


def read_documents(packages: Packages, lang: str) -> Iterator[Triple]:
    for name in SOURCES.split():
        if folder := packages.files(
            "documents", name, f"*/{lang}/*.po", f"*/{lang}.po", f"*.{lang}.po"
        ):
            for file in sorted(folder.rglob("*.po")):
                yield from messages(file, f"document:{name}")


BLOCK = re.compile(r"S[HShs]|[PLHTI]?P|Pp|T[PQ]|R[SE]|nf|fi|E[XE]|It|Bl|El")
FONT = re.compile(r"[BIR]|[BR][IRB]|I[RB]|S[MB]")


def manual_sections(file: Path) -> list[list[tuple[str, str]]]:
    """Blocks of each section of a manual page, as macro and text; examples have no text."""
    with gzip.open(file, "rt", encoding="utf-8", errors="replace") as stream:
        lines = stream.read().splitlines()
    sections: list[list[tuple[str, list[str]]]] = [[("TH", [])]]
    verbatim = False
    for line in lines:
        match = re.match(r"[.']\s*([A-Za-z]+)\s*(.*)", line)
        macro, rest = match.groups() if match else ("", "")
        verbatim = macro in {"nf", "EX"} or (verbatim and macro not in {"fi", "EE"})
        if BLOCK.fullmatch(macro):
            if macro in {"SH", "Sh"}:
                sections.append([])
            heading = rest.strip('"') if macro in {"SH", "SS"} else ""
            sections[-1].append((macro, [heading] if heading else []))
            if macro in {"SH", "SS"}:
                sections[-1].append(("text", []))
        elif verbatim:
            if macro == "br":
                sections[-1].append((macro, []))
        elif line and line[0] not in ".'":
            sections[-1][-1][1].append(line)
        elif FONT.fullmatch(macro):
            words = (quoted or word for quoted, word in re.findall(r'"([^"]*)"|(\S+)', rest))
            sections[-1][-1][1].append(("" if len(macro) == 2 else " ").join(words))
        elif macro == "br" or not line:
            sections[-1].append((macro or "blank", []))
    return [[(macro, " ".join(text)) for macro, text in section] for section in sections]


def read_manuals(packages: Packages, lang: str) -> Iterator[Triple]:
    """Paragraphs of sections that have the same macros in both languages."""

    def pages(names: str, pattern: str) -> Iterator[Path]:
        for name in names.split():
            if folder := packages.files("manuals", name, pattern):
                yield from sorted(folder.rglob("man[0-9]/*.gz"))

    english = {page.name: page for page in pages(ENGLISH_MANUALS, "./usr/share/man/man?/*")}
    for page in pages(MANUALS.format(lang=lang), f"./usr/share/man/{lang}/man?/*"):
        if page.is_symlink() or page.name not in english:
            continue
        try:
            sections = manual_sections(english[page.name]), manual_sections(page)
        except OSError:  # a link to a page of another package
            continue
        for one, two in zip(*sections, strict=False):
            if [macro for macro, _ in one] == [macro for macro, _ in two]:
                for (_, source), (_, target) in zip(one, two, strict=True):
                    if source and target:
                        yield source, target, "manual"


def read_descriptions(packages: Packages, lang: str) -> Iterator[Triple]:
    """Titles of packages, and their paragraphs where both languages have as many."""
    other = packages.descriptions(lang)
    for digest, (title, texts) in packages.descriptions("en").items():
        if digest in other:
            other_title, other_texts = other[digest]
            yield title, other_title, "description"
            if len(texts) == len(other_texts):
                for source, target in zip(texts, other_texts, strict=True):
                    yield source, target, "description"


# Cleaning.

TAG = re.compile(r"</?([A-Za-z][\w:.-]*)[^<>]{0,300}>")
EMPTY_TAGS = {"br", "hr", "img", "p", "li", "ref", "xref", "note", "nl"}
MANUAL_MARKUP = re.compile(r"[BICELSZFX]<+((?:[^<>]|<[^<>]*>)*?)>+")
# _File, S&ave: the mark before the letter of a key.
ACCELERATOR = re.compile(r"(?<!\w)[_&~](?=\w)|(?<=\w)[_&~](?=\w)")
END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(„“»]?[A-ZÄÖÜÀÉÈÊÇ])")
ABBREVIATION = re.compile(
    r"\b(?:z\. ?B|d\. ?h|u\. ?a|bzw|usw|ggf|evtl|Nr|Abs|vgl|"
    r"e\.g|i\.e|etc|vs|Mr|Dr|St|No|ca|p\. ex)\.$"
)
ENGLISH = re.compile(r"the|of|and|to|is|in|that|for|with|this|are|be|not|on|you|or|by|from")


def plain(text: str, *, of_a_program: bool) -> str:
    """A text in one line, without markup and accelerators."""
    for _ in range(3):  # B<I<...>>
        text = MANUAL_MARKUP.sub(r"\1", text)
    text = text.replace("%<", "'").replace("%>", "'")  # quotes of gcc
    # A tag that nothing closes is a placeholder: <file>.
    closed = EMPTY_TAGS | {name.lower() for name in re.findall(r"</([A-Za-z][\w:.-]*)", text)}
    text = TAG.sub(lambda m: "" if m[1].lower() in closed or m[0].endswith("/>") else m[0], text)
    text = html.unescape(text)
    escapes = {"\\ ": " ", "\\-": "-", "\\&": "", "\\e": "\\", "\\(aq": "'"}
    for escape, character in escapes.items():
        text = text.replace(escape, character)
    text = re.sub(r"\\f[BIRP]|\\[(\[]\w+\]?", "", text)
    marks = len(re.findall(r"[_&~]", text))
    if of_a_program and len(text) < 80 and marks == 1 and not re.search(r"\w{2,}_\w{2,}", text):
        text = ACCELERATOR.sub("", text, count=1)
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    parts: list[str] = []
    for part in END_OF_SENTENCE.split(text):
        if parts and ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + part
        else:
            parts.append(part)
    return parts


def sentence_pairs(source: str, target: str) -> list[tuple[str, str]]:
    """Pairs of sentences, or the pair itself if one side has more sentences."""
    sides = sentences(source), sentences(target)
    if len(sides[0]) != len(sides[1]):
        return [(source, target)]
    return list(zip(*sides, strict=True))


def key(text: str) -> str:
    """Equal for texts that differ in case, punctuation and digits alone."""
    return re.sub(r"[\W\d_]+", " ", text.lower()).strip()


def fault(source: str, target: str) -> str | None:
    """Why a pair is of no use."""
    sides = source, target
    letters = [sum(map(str.isalpha, side)) for side in sides]
    if min(letters) < 3 or any(n < 0.4 * len(s) for n, s in zip(letters, sides, strict=True)):
        return "hardly any letters"
    if key(source) == key(target):
        return "the same on both sides"
    words = max(len(side.split()) for side in sides)
    if words > 100:
        return "more than 100 words"
    if words > 3 and max(map(len, sides)) > 2.5 * min(map(len, sides)):
        return "very different lengths"
    targets = target.lower().split()
    if len(targets) >= 5 and len([*filter(ENGLISH.fullmatch, targets)]) >= 0.25 * len(targets):
        return "English on both sides"
    # Another date or version is often a translation of an older text.
    numbers = [sorted(re.findall(r"\d+", side)) for side in sides]
    if numbers[0] != numbers[1] and len(source.split()) > 3 and sum(map(len, numbers)) > 2:
        return "other numbers"
    return None


def usable_pairs(raw: Iterator[Triple]) -> list[Triple]:
    """Clean pairs of sentences, each once; prints what was dropped."""
    kept, dropped = {}, collections.Counter[str]()
    for source, target, origin in raw:
        program = origin.startswith("program:")
        for pair in sentence_pairs(*(plain(t, of_a_program=program) for t in (source, target))):
            keys = key(pair[0]), key(pair[1])
            reason = fault(*pair) or ("repeated" if keys in kept else None)
            if reason:
                dropped[reason] += 1
            else:
                kept[keys] = (*pair, origin)
    for reason, count in dropped.most_common():
        print(f"dropped {count:>7,}  {reason}")
    return list(kept.values())


def split(pairs: list[Triple], held: int) -> dict[str, list[Triple]]:
    """Train, valid, test and test.docs; a digest of the English text decides."""
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": [], "test.docs": []}
    for pair in sorted(pairs, key=lambda pair: hashlib.sha256(key(pair[0]).encode()).digest()):
        names = ["test.docs"] if pair[2] in HELD_OUT else ["valid", "test", "train"]
        if not 4 <= len(pair[0].split()) <= 60:
            names = names[2:]
        for name in names:
            if name == "train" or len(parts[name]) < held:
                parts[name].append(pair)
                break
    for side in (0, 1):
        others = {
            key(pair[side]) for name in ("valid", "test", "test.docs") for pair in parts[name]
        }
        parts["train"] = [pair for pair in parts["train"] if key(pair[side]) not in others]
    return parts


def pairs_of(packages: Packages, lang: str) -> Iterator[Triple]:
    """All pairs of raw texts."""
    for read in (read_programs, read_help, read_documents, read_manuals, read_descriptions):
        print(f"reading {read.__name__.removeprefix('read_')}", flush=True)
        yield from read(packages, lang)


def main(_):
    lang, output = FLAGS.target_lang, Path(FLAGS.output).resolve()
    if found := sorted(output.glob("train.*")):
        sys.exit(f"{found[0]} exists: choose another folder with --output")
    if not shutil.which("apt-get"):
        sys.exit("apt-get is missing: the corpus is made of Debian's packages, on Debian")
    packages = Packages(output / f"packages-{lang}", lang)
    for name, part in split(usable_pairs(pairs_of(packages, lang)), FLAGS.held).items():
        for side, language in enumerate(("en", lang)):
            text = "".join(pair[side] + "\n" for pair in part)
            (output / f"{name}.{language}").write_text(text, encoding="utf-8")
        print(f"{name:9} {len(part):>9,} pairs")


if __name__ == "__main__":
    app.run(main)
