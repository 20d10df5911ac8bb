"""Do two pieces of free text ask for the same?  Words only; deliberately hard to convince.

Case, accents, punctuation, filler words, plurals and British spelling do not matter.  Everything
else does: every word that carries meaning must have its partner in the same order, so that a
negation, "off" for "on", France for Texas, or two places swapped leave a word without a partner.
"""

import functools
import re
import unicodedata
from typing import NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

TURNING = frozenset(('of', 'in', 'for', 'about', 'at'))  # "revenue of Apple" is "Apple revenue"
FILLERS = TURNING | {'a', 'an', 'the', 'with', 'please', 'regarding', 'concerning'}
LEAD = re.compile(
    r'^(?:(?:please|(?:can|could) you|find(?: out)?|get|show|give|tell|search(?: for)?|list|'
    r"look(?: up| for)|what(?:['’]s| is| are)|me|the|an?|for|about)\s+)+",
    re.I,
)
# An extra word may be forgiven in a long text, but none of these.
POLAR = frozenset(
    re.findall(
        r'\w+',
        'not no never none without except excluding including only all any but and or nor neither '
        'unless on off in out up down before after more less most least non both if',
    )
)
WORDS_FOR_ONE_EXTRA = 8  # one word in so many may lack a partner
SLIP_LETTERS = 8  # shorter words that differ in a letter are too often different words
LONG_CHARACTERS = 4000  # longer texts must be equal
CODE = re.compile(r'[_\\/@={}\[\]^|~#`;]|[^\W\d]\.\w|\w\.[^\W\d]|^\S*[a-z][A-Z]\S*$')
TOKEN = re.compile(
    r"(?<!\w)[-+]?\d+(?:[.,:/-]\d+)*[^\W_]*%?|[^\W_]+(?:['’][^\W_]+)*|[-+*<>=%&$€£¥°±×÷!]"
)
HYPHEN = re.compile(r'(?<=[^\W\d])[-–—](?=\w)|(?<=\w)[-–—](?=[^\W\d])')
YEAR = re.compile(r'(?:19|20)\d\d')
BRITISH = (
    (re.compile(r'([iy])s(e[ds]?|er|ers|ing|ation|ations)$'), r'\1z\2'),
    (re.compile(r'(\w{3})our(s|ed|ing|ite|able)?$'), r'\1or\2'),
    (re.compile(r'(cent|theat|met|lit)re(s?)$'), r'\1er\2'),
    (re.compile(r'ogue(s?)$'), r'og\1'),
)


class Word(NamedTuple):
    """One word that carries meaning."""

    spelling: str  # small letters, no accents, no possessive, American
    singular: str
    capital: bool  # a name, perhaps


class Reading(NamedTuple):
    """A text as it is compared."""

    words: tuple[Word, ...]  # in order
    turned: tuple[Word, ...]  # "B A" where the text says "A of B"; empty where it does not
    years: tuple[str, ...]
    line: str  # all of it, in a fixed order, for measuring
    code: bool  # no prose: compared letter by letter


@functools.lru_cache(maxsize=65536)
def read(text: str) -> Reading:
    """Takes a text apart once."""
    plain = unicodedata.normalize('NFKC', text).strip()
    if CODE.search(plain) or len(plain) > LONG_CHARACTERS or not plain:
        return Reading((), (), (), text.strip(), True)
    tokens = TOKEN.findall(HYPHEN.sub(' ', LEAD.sub('', plain) or plain))
    years = tuple(token for token in tokens if YEAR.fullmatch(token))
    words, turned = _in_order(tokens, plain)
    line = ' '.join(sorted(word.singular for word in words) + sorted(years))
    return Reading(words, turned, years, line, not words and not years)


def _in_order(tokens: list[str], text: str) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """The words as they stand, and as they would stand had "A of B" been written "B A"."""
    words: list[Word] = []
    turn = 0
    for place, token in enumerate(tokens):
        if YEAR.fullmatch(token):
            continue
        if not _is_filler(tokens, place, text):
            words.append(_word(token))
        elif token.lower() in TURNING and not YEAR.fullmatch(tokens[place + 1]):
            turn = turn or len(words)
    return tuple(words), (*words[turn:], *words[:turn]) if turn else ()


def _is_filler(tokens: list[str], place: int, text: str) -> bool:
    token = tokens[place]
    if token.lower() not in FILLERS or place == len(tokens) - 1:
        return False  # at the end, "in" is Indiana
    # Vitamin A and IN are no fillers, unless everything is in capitals.
    return place == 0 or not token.isupper() or text.isupper()


def _word(token: str) -> Word:
    folded = unicodedata.normalize('NFKD', token).casefold().replace('’', "'")
    spelling = ''.join(letter for letter in folded if not unicodedata.combining(letter))
    spelling = 'and' if spelling == '&' else spelling.removesuffix("'s")
    for pattern, american in BRITISH:
        if len(spelling) > 5:
            spelling = pattern.sub(american, spelling)
    return Word(spelling, _singular(spelling), token[:1].isupper())


def _singular(word: str) -> str:
    if len(word) < 5 or not word.isalpha() or word.endswith(('ss', 'us', 'is')):
        return word
    if word.endswith('ies'):
        return word[:-3] + 'y'
    if word.endswith(('ses', 'xes', 'zes', 'ches', 'shes')):
        return word[:-2]
    return word[:-1] if word.endswith('s') else word


def _same(one: Word, other: Word) -> bool:
    if one.spelling == other.spelling:
        return True
    if one.singular == other.singular:
        return not (one.capital and other.capital)  # Williams is not William
    return _slip(one.spelling, other.spelling)


def _slip(one: str, other: str) -> bool:
    """A letter left out, doubled or swapped inside a long word: accomodation, goverment."""
    if min(len(one), len(other)) < SLIP_LETTERS or not (one.isalpha() and other.isalpha()):
        return False
    if one[0] != other[0] or one[-1] != other[-1] or OSA.distance(one, other, score_cutoff=1) > 1:
        return False
    return len(one) != len(other) or sorted(one) == sorted(other)


def _partners(one: tuple[Word, ...], other: tuple[Word, ...]) -> bool:
    """Each word has its partner, in the same order; a long text may have a few extra."""
    short, long = sorted((one, other), key=len)
    if (len(long) - len(short)) * WORDS_FOR_ONE_EXTRA > len(short):
        return False
    place = 0
    for word in long:
        if place < len(short) and _same(word, short[place]):
            place += 1
        elif word.capital or not word.spelling.isalpha() or word.spelling in POLAR:
            return False
    return place == len(short)


def alike(one: str, other: str) -> float:
    """How alike two texts are, in [0, 1]; 0 if anything says that they mean different things."""
    if one == other:
        return 1.0
    first, second = read(one), read(other)
    if first.code or second.code:
        return float(first.code and second.code and first.line == second.line)
    if first.years != second.years:
        return 0.0
    orders = [(first.words, second.words)]
    if first.turned and not second.turned:
        orders.append((first.turned, second.words))
    if second.turned and not first.turned:
        orders.append((first.words, second.turned))
    if not any(_partners(*order) for order in orders):
        return 0.0
    return fuzz.ratio(first.line, second.line) / 100
