"""Do two pieces of free text ask for the same?  Words only; deliberately hard to convince.

Case, accents, punctuation, filler words, plurals and British spelling do not matter.  Everything
else does: every word that carries meaning must have its partner in the same order, so that a
negation, "off" for "on", France for Texas, or two places swapped leave a word without a partner.
A slip of the pen is not forgiven: no rule tells "goverment" from "morality", which is no slip for
"mortality".
"""

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from rapidfuzz import fuzz

from cacherl_jax.tool_cache import vocabulary

WORDS_FOR_ONE_MORE = 8  # one light word in so many may lack a partner
LONG_CHARACTERS = 4000  # longer texts must be equal
CODE = re.compile(r'[_\\/@={}\[\]^|~#`;]|[^\W\d]\.\w|\w\.[^\W\d]|^\S*[a-z][A-Z]\S*$')
TOKEN = re.compile(
    r"(?<!\w)[-+]?\d+(?:[.,:/-]\d+)*[^\W_]*%?|[^\W_]+(?:'[^\W_]+)*|[-+*<>=%&$€£¥°±×÷!]"
)
YEAR = re.compile(r'(?:19|20)\d\d')
NUMBER = re.compile(r'([-+]?\d[\d.,:/-]*)([^\W\d_]+)')  # 5km
CLOTHES = (  # what a text may be dressed in: pattern, what it is without
    (re.compile(r'[’‘`´]'), "'"),
    (re.compile(r'\b((?:[^\W\d_]\.){2,})'), lambda found: found[0].replace('.', '')),  # U.S.
    *vocabulary.CONTRACTIONS,
    (re.compile(r'(?<=[^\W\d_]{2})\s+[-–—]\s+(?=[^\W\d_]{2})'), ' '),
    (re.compile(r'(?<=[^\W\d])[-–—](?=\w)|(?<=\w)[-–—](?=[^\W\d])'), ' '),
    (re.compile(r'(?<!\d)!+'), ' '),
    (re.compile(rf'(?<=\d)\s+(?=%|{vocabulary.CASED_UNIT.pattern}\b)', re.I), ''),
    (re.compile(r'(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])'), lambda x: x[0].replace(',', '')),
    (re.compile(rf'\b(\d{{1,2}}) ({"|".join(vocabulary.MONTHS)})\b', re.I), r'\2 \1'),
)


class Word(NamedTuple):
    """One word that carries meaning."""

    spelling: str  # small letters, no accents, no possessive, American
    singular: str
    capital: bool  # a name, perhaps; abbreviations are none
    before: str = ''  # the preposition that was left out
    named: bool = False  # a capital after "the": a title, perhaps


class Reading(NamedTuple):
    """A text as it is compared."""

    words: tuple[Word, ...]  # in order
    turned: tuple[Word, ...]  # "B A" where the text says "A of B"; empty where it does not
    years: tuple[tuple[str, int], ...]  # each with the number of words before it
    line: str  # all of it, in a fixed order, for measuring
    code: bool  # no prose: compared letter by letter


@functools.lru_cache(maxsize=65536)
def read(text: str) -> Reading:
    """Takes a text apart once."""
    plain = unicodedata.normalize('NFKC', text).strip()
    for pattern, bare in CLOTHES:
        plain = pattern.sub(bare, plain)
    if CODE.search(plain) or len(plain) > LONG_CHARACTERS or not plain:
        return Reading((), (), (), text.strip(), True)
    tokens = TOKEN.findall(vocabulary.LEAD.sub('', plain) or plain)
    words, years, turn = _words(tokens, plain)
    line = ' '.join(sorted(word.singular for word in words) + sorted(year for year, _ in years))
    turned = ()
    if turn and words[turn - 1].singular not in vocabulary.INSTITUTIONS:
        turned = (words[turn]._replace(before=''), *words[turn + 1 :], *words[:turn])
    return Reading(tuple(words), turned, tuple(years), line, not words and not years)


def _words(tokens: list[str], text: str) -> tuple[list[Word], list[tuple[str, int]], int]:
    """The words in order, the years, and the number of words before the first "of"."""
    words: list[Word] = []
    years, turn, before = [], 0, ''
    for place, token in enumerate(tokens):
        small = token.lower()
        if YEAR.fullmatch(token):
            years.append((token, len(words)))
            before = ''
        elif not _is_filler(tokens, place, text):
            named = _is_title(token) and place and tokens[place - 1].lower() == 'the'
            parts = (_word(part, text, bool(named)) for part in _parts(token))
            words = _shortened([*words, *(part._replace(before=before) for part in parts)])
            before = ''
        elif small not in vocabulary.ARTICLES:
            before = 'about' if small in vocabulary.ABOUT else small
            if small in vocabulary.TURNING and not YEAR.fullmatch(tokens[place + 1]):
                turn = turn or len(words)
    return words, years, turn if turn < len(words) else 0


def _is_filler(tokens: list[str], place: int, text: str) -> bool:
    token = tokens[place]
    if token.lower() == 'please' and tokens[place + 1 :][:1] == ['me']:
        return False
    if token.lower() not in vocabulary.FILLERS or place == len(tokens) - 1:
        return False  # at the end, "in" is Indiana
    # Vitamin A and IN are no fillers, unless everything is in capitals.
    return place == 0 or not token.isupper() or text.isupper()


def _parts(token: str) -> Iterator[str]:
    """A number and its unit are two words."""
    split = NUMBER.fullmatch(token)
    if not split:
        yield token
        return
    number, unit = split.groups()
    yield number
    # No word begins with a mark, so that a unit with its case is like no other word.
    yield f'.{unit}' if vocabulary.CASED_UNIT.fullmatch(unit) else unit


def _shortened(words: list[Word]) -> list[Word]:
    """The words, the last ones joined where they are one thing: United States, 5 MB."""
    for several, one in vocabulary.SEVERAL_WORDS.items():
        kept = tuple(word.spelling for word in words[-len(several) :])
        if kept == several:
            first = words[-len(several)]
            return [*words[: -len(several)], Word(one, one, True, first.before)]
    return words


def _word(token: str, text: str, named: bool) -> Word:
    folded = unicodedata.normalize('NFKD', token).casefold()
    spelling = ''.join(letter for letter in folded if not unicodedata.combining(letter))
    if token.startswith('.'):
        return Word(token, token, False)
    if token in ('US', 'USA'):
        return Word('usa', 'usa', True)
    if spelling in vocabulary.CAPITALS and not text.isupper() and (token.isupper() or named):
        return Word(spelling.upper(), spelling.upper(), True)
    spelling = 'and' if spelling == '&' else spelling.removesuffix("'s")
    if spelling in vocabulary.HOMOGRAPHS and _is_title(token):
        return Word(spelling.title(), spelling.title(), True, named=named)
    spelling = vocabulary.ONE_WORD.get(spelling, spelling)
    for pattern, american in vocabulary.SPELLINGS:
        if len(spelling) > 5:
            spelling = pattern.sub(american, spelling)
    return Word(spelling, _singular(spelling), _is_title(token), named=named)


def _is_title(token: str) -> bool:
    return token[:1].isupper() and not token[1:].isupper()


def _singular(word: str) -> str:
    """Equal for a word and its plural; no word of the language where that is simpler."""
    if len(word) < 4 or not word.isalpha() or word in vocabulary.NO_PLURALS:
        return word
    if word.endswith(('ss', 'us', 'is', 'ics')):
        return word
    if word.endswith('ies') and len(word) > 4:
        return word[:-3] + 'y'
    if word.endswith(('ses', 'xes', 'zes', 'ches', 'shes')):
        return word[:-2]
    if word.endswith(('se', 'xe', 'ze', 'che', 'she')):
        return word[:-1]  # "houses" could be of "hous"
    return word[:-1] if word.endswith('s') else word


def _same(one: Word, other: Word) -> bool:
    if one.before != other.before and not {one.before, other.before} <= vocabulary.DROPPED:
        return False
    if one.before and other.before and one.before != other.before:
        return False
    if one.named != other.named and not (one.capital and other.capital):
        return False  # The Help is no help
    if one.spelling == other.spelling:
        return True
    # Williams is not William.
    return one.singular == other.singular and not (one.capital and other.capital)


def _partners(one: tuple[Word, ...], other: tuple[Word, ...]) -> bool:
    """Each word has its partner, in the same order; a long text may have a light word more."""
    short, long = sorted((one, other), key=len)
    if (len(long) - len(short)) * WORDS_FOR_ONE_MORE > len(short):
        return False
    place = 0
    for word in long:
        if place < len(short) and _same(word, short[place]):
            place += 1
        elif word.spelling not in vocabulary.LIGHT:
            return False
    return place == len(short)


def _turned_partners(turned: Reading, plain: Reading) -> bool:
    """Whether "A of B" and "B A" are meant; Paris Hilton is no Hilton in Paris, and a text that
    has nothing but names around its "of" is a title: Death in Venice, House of Cards."""
    if not turned.turned or plain.turned or not _years_may_move(turned, plain):
        return False
    if all(word.capital for word in turned.words):
        return False
    moved = turned.words[0]
    names = (word.capital for word in plain.words[1:] if word.spelling == moved.spelling)
    return not any(names) and _partners(turned.turned, plain.words)


def _years_may_move(one: Reading, other: Reading) -> bool:
    spellings = {word.spelling for word in (*one.words, *other.words)}
    return not one.years or spellings.isdisjoint(vocabulary.LINKING)


def signature(text: str) -> str:
    """Equal for all texts that are alike at all, and for some more: what is worth comparing."""
    reading = read(text)
    if reading.code:
        return f'={reading.line}'
    words = sorted(word.singular for word in reading.words if word.spelling not in vocabulary.LIGHT)
    return ' '.join([*words, *(year for year, _ in reading.years)])


def alike(one: str, other: str) -> float:
    """How alike two texts are, in [0, 1]; 0 if anything says that they mean different things."""
    if one == other:
        return 1.0
    first, second = read(one), read(other)
    if first.code or second.code:
        return float(first.code and second.code and first.line == second.line)
    if [year for year, _ in first.years] != [year for year, _ in second.years]:
        return 0.0
    stay = first.years == second.years or _years_may_move(first, second)
    same = stay and _partners(first.words, second.words)
    if not (same or _turned_partners(first, second) or _turned_partners(second, first)):
        return 0.0
    return fuzz.ratio(first.line, second.line) / 100
