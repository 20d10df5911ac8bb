"""Invented words for `conversation`: vocabulary, names, ids, numbers, quantities, phrases."""

import itertools
import random
import re
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
CLASSES = {  # what a word is said to be
    'fruit': 'apple pear plum peach cherry grape lemon melon mango fig',
    'metal': 'iron gold silver copper tin lead zinc steel brass bronze',
    'animal': 'horse dog cat cow sheep goat pig mouse wolf fox deer bear',
    'bird': 'eagle owl crow duck goose swan hawk dove robin gull',
    'fish': 'salmon trout cod tuna eel shark carp herring perch pike',
    'vehicle': 'car bus truck van bike boat ferry train plane tram taxi',
    'tool': 'hammer saw drill wrench nail axe shovel rake knife needle',
    'fabric': 'wool silk cotton linen velvet denim lace felt leather nylon',
    'drink': 'water tea coffee milk juice wine beer cocoa cider soda',
    'instrument': 'piano violin guitar flute drum harp horn cello trumpet organ',
    'wet': 'rain drizzle storm showers thunder sleet flood damp mist downpour',
    'dry': 'sunny clear bright fair dry cloudless arid dusty parched desert',
    'hot': 'boiling burning blazing tropical heat scorching baking sweltering',
    'cold': 'frost ice snow freezing icy chilly winter arctic frozen polar',
    'up': 'rose grew climbed gained jumped soared increased improved doubled',
    'down': 'fell dropped shrank lost declined sank decreased worsened halved',
    'sport': 'tennis football hockey rugby golf cricket boxing rowing skiing swimming',
    'building': 'museum library hall theatre gallery baths church castle tower palace',
    'way': 'path trail walk lane street road alley avenue route track',
    'happy': 'glad cheerful merry joyful pleased delighted content jolly',
    'sad': 'gloomy unhappy tearful sorry miserable lonely upset grim',
    'fast': 'quick rapid swift speedy hasty brisk express instant',
    'slow': 'sluggish gradual lazy crawling delayed plodding idle late',
}
CLASSES = {name: tuple(words.split()) for name, words in CLASSES.items()}
OPPOSED = (
    ('wet', 'dry'), ('wet', 'dry'), ('wet', 'dry'), ('hot', 'cold'), ('up', 'down'),
    ('happy', 'sad'), ('fast', 'slow'), ('fruit', 'metal'), ('animal', 'vehicle'),
    ('bird', 'fish'), ('tool', 'drink'), ('fabric', 'instrument'), ('sport', 'building'),
)  # fmt: skip
CALENDAR = (
    'Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May '
    'June July August September October November December'
).split()
OTHERS = (  # words of every day that are nobody's field
    'glass toy old art sea rail coin river hill forest coast garden canal bridge mill swim games '
    'rowing picnic climb long west east north south wood sand field high low lane labs group '
    'works global home party meeting lesson opera ballet concert dinner lunch breakfast morning '
    'evening night noon spring summer autumn today tomorrow yesterday week food sport pen bill '
    'gate metal grams bag hours nights medals plays visits pages guest line stop ward port ship '
    'july june april march may min max sum mean average largest smallest report insulin patent '
    'demand prices sales costs software phone chip cloud data trial drug vaccine shares bank '
    'please suggest spend weather rain shine find plan make anything fits suits visit time we are '
    'what how should could would does did was were which where when who why and or but not only '
    'with for from in on of at by to into out over under about after before between during than '
    'then there here this that these those it its my your our their is be has have had do give '
    'tell say show look need want take keep leads lead most more less very also so because if '
    'else none nothing unavailable error message unknown missing failed found summarise summarize '
    'compute short moved main plus year add aggregate column table rows groups value load filter '
    'query search parse document text field extract summary share price archive company copy '
    'list tables city day sky indoor outdoor hotel forecast name names here one two three '
    'four five six seven eight nine ten first second third last next other same new million '
    'billion global national general'
).split()
WORDS = tuple(dict.fromkeys(
    itertools.chain(NOUNS, ADJECTIVES, VERBS, *CLASSES.values(), OTHERS)
))  # fmt: skip
UNITS = 'km m kg g tons days hours minutes percent points dollars units pieces miles liters'.split()
ONSETS = 'b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w x y z'.split()
VOWELS = 'a e i o u ai ea ia io ou y'.split()
CODAS = ['', '', '', 'n', 'r', 's', 'l', 'm', 'x', 'nd', 'rt', 'ck', 'th', 'st', 'v']
SUITE_NAME = re.compile('[^aeiou][aeiou][^aeiou][aeiou][^aeiou]')  # a shape that suites draw from
SUFFIXES = (
    'Group Labs Works Systems Park Hall House Street Lake Bay Center Union Trust Club Inc'.split()
)


class Draws(random.Random):
    """Chance that knows pieces to make names of, such as the tokens of a tokenizer."""

    pieces: tuple[str, ...] = ()


def piece(rng: random.Random) -> str:
    """One of the pieces that chance knows, or two to four letters cut from a known word."""
    if isinstance(rng, Draws) and rng.pieces and rng.random() < 0.7:
        return rng.choice(rng.pieces)
    word, size = rng.choice(WORDS), rng.randint(2, 4)
    start = rng.choice((0, rng.randrange(len(word)), max(0, len(word) - size)))
    return word[start : start + size]


def made_up_name(rng: random.Random) -> str:
    """A capitalised name that exists nowhere, of one or two words."""
    word = ''.join(
        rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
        for _ in range(rng.choice((1, 2, 2, 3)))
    )
    # Letters in any order, and pieces of known words: every piece of the tokenizer is copied
    # somewhere.
    if (form := rng.random()) < 0.15:
        word = ''.join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 8)))
    elif form < 0.5:
        word = rng.choice(ONSETS) + rng.choice(VOWELS) * (form < 0.4) + piece(rng)
    elif form < 0.6:
        word = piece(rng) + piece(rng)
    if SUITE_NAME.fullmatch(word):
        return made_up_name(rng)
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
    """A few words, or a short sentence."""
    if rng.random() < 0.15:
        noun, adjective, verb, other = map(rng.choice, (NOUNS, ADJECTIVES, VERBS, NOUNS))
        return f'The {noun} is {adjective}, {verb}ed by {other}.'
    return few_words(rng)


def few_words(rng: random.Random) -> str:
    """One to five words without a stop."""
    style = rng.randrange(5)
    if style == 0:
        return f'{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}'
    if style == 4:
        return ' '.join(rng.sample(WORDS, rng.randint(2, 4)))
    if style == 5:
        return f'{rng.choice(WORDS)} {rng.choice(("at", "in", "by", "on"))} {title(rng)}'
    if style == 1:
        return f'{rng.choice(NOUNS)} {rng.choice(NOUNS)}'
    if style == 2:
        noun, adjective, verb, other = map(rng.choice, (NOUNS, ADJECTIVES, VERBS, NOUNS))
        return f'The {noun} is {adjective}, {verb}ed by {other}.'
    return rng.choice(CALENDAR) if rng.random() < 0.3 else rng.choice(WORDS)


def title(rng: random.Random) -> str:
    """Two words with capitals."""
    return f'{rng.choice(WORDS).capitalize()} {rng.choice(WORDS).capitalize()}'


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
