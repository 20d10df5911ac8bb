"""Invented words for `conversation`: vocabulary, names, ids, numbers, quantities, phrases."""

import random
import string

VERBS = (
    'get find read list open load fetch look check show search count take give pick sort filter '
    'group sum measure compare track scan query select make build plan send move join split '
    'trace map rate test parse extract convert convey describe summarize resolve collect browse '
    'locate'
).split()
NOUNS = tuple(dict.fromkeys((
    'price owner color size weight level code team place status record file page note item '
    'order ticket room engine book song plant animal stone river ship road bridge garden house '
    'tool lamp clock table chair box report document section field figure value name title date '
    'time day week month year city country region company person group member student teacher '
    'doctor artist driver pilot player coach score rank grade speed height depth length width '
    'area volume mass energy power temperature pressure signal channel message letter number '
    'key label tag type class kind shape form part unit piece set row column index source '
    'target origin path link node tree leaf root branch seed fruit bread rice milk water salt '
    'sugar tea coffee meal dish menu recipe market shop store stock cost rent wage tax fee '
    'profit loss budget amount total average growth change trend reason driver result answer '
    'question summary detail forecast weather wind snow heat event match game race concert show '
    'film museum park tour route trip visit walk activity plan option choice offer deal sale '
    'product brand model version system server network device phone screen button sensor '
    'battery wheel door window floor roof wall revenue sales income margin cash debt quarter '
    'customer patient condition sky cloud storm sun map guide gallery library hall theatre '
    'beach hill lake forest coast canal hotel archive copy text driver direction outlook points '
    'doses riders drug crop farm table sum top most demand supply price fees data chip trial '
    'vaccine picnic market climb walk trail day'
).split()))  # fmt: skip
ADJECTIVES = (
    'red blue green black white small large new old fast slow high low long short hot cold warm '
    'cool dry wet light dark soft hard open closed full empty free busy early late good poor '
    'rich safe strong weak clear quiet loud clean sweet fresh active idle ready rising falling '
    'flat steady indoor outdoor sunny bright fair rainy cloudy windy foggy frozen mild stormy '
    'unavailable broken working missing public private'
).split()
UNITS = 'km m kg g tons days hours minutes percent points dollars units pieces miles liters'.split()
ONSETS = 'b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w x y z'.split()
VOWELS = 'a e i o u ai ea ia io ou y'.split()
CODAS = ['', '', '', 'n', 'r', 's', 'l', 'm', 'x', 'nd', 'rt', 'ck', 'th', 'st', 'v']
SUFFIXES = (
    'Group Labs Works Systems Park Hall House Street Lake Bay Center Union Trust Club Inc'.split()
)


def made_up_name(rng: random.Random) -> str:
    """A capitalised name that exists nowhere, of one or two words."""
    word = ''.join(
        rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
        for _ in range(rng.choice((1, 2, 2, 3)))
    )
    if rng.random() < 0.25:
        # Letters in any order, so that every piece of the tokenizer is copied somewhere.
        word = ''.join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 8)))
    name = word.capitalize()
    if rng.random() < 0.3:
        name += ' ' + (rng.choice(SUFFIXES) if rng.random() < 0.6 else made_up_name(rng).split()[0])
    return name


def made_up_id(rng: random.Random) -> str:
    """An identifier: a word, digits, or both."""
    word = rng.choice(NOUNS) if rng.random() < 0.6 else made_up_name(rng).split()[0].lower()
    number = str(rng.randint(1, 10 ** rng.randint(1, 4)))
    style = rng.randrange(6)
    return (
        f'{word}-{number}', f'{word}_{number}', f'{word[:2]}{number}',
        f'{word}_{rng.choice(NOUNS)}',
        f'{made_up_name(rng).split()[0].lower()}-{rng.randint(1990, 2035)}-{word}',
        f'{word[0]}{rng.randint(100, 9999)}',
    )[style]  # fmt: skip


def number(rng: random.Random):
    """An integer or a decimal, as JSON would hold it."""
    style = rng.randrange(4)
    if style == 0:
        return rng.randint(1, 9)
    if style == 1:
        return rng.randint(10, 999)
    return round(rng.uniform(0, 100), rng.randint(1, 2)) if style == 2 else rng.randint(1000, 2040)


def quantity(rng: random.Random) -> str:
    """A number with its unit."""
    unit = rng.choice(UNITS)
    if rng.random() < 0.3:
        unit = (
            rng.choice(('million', 'billion'))
            + ' '
            + rng.choice(('dollars', 'units', 'EUR', 'USD'))
        )
    return f'{number(rng)} {unit}'


def phrase(rng: random.Random) -> str:
    """A few words."""
    style = rng.randrange(4)
    if style == 0:
        return f'{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}'
    if style == 1:
        return f'{rng.choice(NOUNS)} {rng.choice(NOUNS)}'
    if style == 2:
        noun, adjective, verb, other = map(rng.choice, (NOUNS, ADJECTIVES, VERBS, NOUNS))
        return f'The {noun} is {adjective}, {verb}ed by {other}.'
    return rng.choice(ADJECTIVES) if rng.random() < 0.5 else rng.choice(NOUNS)


def value(rng: random.Random):
    """Anything a field may hold."""
    make = rng.choice((made_up_name, made_up_name, made_up_id, number, quantity, phrase))
    made = make(rng)
    return made.lower() if isinstance(made, str) and rng.random() < 0.2 else made


def distinct(rng, make, count):
    """`count` different values of `make`."""
    found = []
    while len(found) < count:
        item = make(rng)
        if item not in found:
            found.append(item)
    return found
