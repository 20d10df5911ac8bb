"""What `alike` knows about English: words to leave out, equal spellings, plurals that are none.

Tables only.  A word that is in none of them is compared as it stands.
"""

import re

# "A of B" may be written "B A".  `about` may not: books about Hemingway are no Hemingway books.
TURNING = frozenset(('of', 'in', 'for', 'at'))
ABOUT = frozenset(('about', 'regarding', 'concerning'))
# "restaurants in Lyon" may be written "restaurants Lyon"; dogs for food are no dog food.
DROPPED = frozenset(('of', 'in', 'at', ''))
ARTICLES = frozenset(('a', 'an', 'the', 'please'))
FILLERS = TURNING | ABOUT | ARTICLES
# These do not turn: the University of Miami is not Miami University, a man of war no war man.
INSTITUTIONS = frozenset(
    'academy bank bay cape church city club college county court duchy duke gulf house institute '
    'island isle kingdom lake lord man mount museum order port queen republic school state '
    'university valley'.split()
)
# A year may move to another place only where nothing says what goes with what.
LINKING = frozenset(
    'after against and before between but by from into nor or over than then to under until versus '
    'with'.split()
)
# A text of many words may have one of these more.
LIGHT = frozenset(('also', 'actually', 'kindly', 'really'))
# With a capital these are names: the WHO, IT support, the Who.
CAPITALS = frozenset('am as at do he in is it me no or so us who'.split())
# With a capital these are countries and cities, and something else without.
HOMOGRAPHS = frozenset('bath china mobile nice polish reading turkey'.split())
LEAD = re.compile(
    r'^(?:(?:please(?! me\b)|(?:can|could) you|i (?:want|need|would like) to|'
    r'find(?: out| me)?(?! my\b)|(?:get|show|give|tell)(?: me| us)|'
    r'(?:get|show|give|list)(?= (?:the|all|an?)\b)|(?<=you )list|search for|look (?:up|for)|'
    r'what (?:is|are)|the(?! (?-i:[A-Z]))|an?|for|about)\s+)+',
    re.I,
)
CONTRACTIONS = (
    (re.compile(r"\bcan't\b|\bcannot\b", re.I), 'can not'),
    (re.compile(r"\bwon't\b", re.I), 'will not'),
    (re.compile(r"(?<=\w)n't\b", re.I), ' not'),
    (re.compile(r"(?<=\w)'re\b", re.I), ' are'),
    (re.compile(r"(?<=\w)'ve\b", re.I), ' have'),
    (re.compile(r"(?<=\w)'ll\b", re.I), ' will'),
    (re.compile(r"\b(what|who|where|when|how|that|there|here|it|he|she)'s\b", re.I), r'\1 is'),
)
DOUBLED = 'travel|cancel|channel|counsel|dial|fuel|jewel|label|level|marvel|model|signal|total'
SPELLINGS = (
    (re.compile(r'([iy])s(e[ds]?|er|ers|ing|ation|ations)$'), r'\1z\2'),
    (re.compile(r'(\w{3})our(s|ed|ing|ite|able)?$'), r'\1or\2'),
    (re.compile(r'(cent|theat|met|lit)re(s?)$'), r'\1er\2'),
    (re.compile(r'ogue(s?)$'), r'og\1'),
    (re.compile(r'(def|off|lic|pret)ence(s?)$'), r'\1ense\2'),
    (re.compile(rf'^({DOUBLED})l(ing|ed|er|ers)$'), r'\1\2'),
)
MONTHS = (
    'january february march april may june july august september october november december'.split()
)
ONE_WORD = {month[:3]: month for month in MONTHS if month not in ('march', 'may')} | {
    'sept': 'september',
    'aluminium': 'aluminum',
    'colour': 'color',
    'grey': 'gray',
    'litre': 'liter',
    'litres': 'liters',
    'metre': 'meter',
    'metres': 'meters',
    'jewellery': 'jewelry',
    'programme': 'program',
    'tv': 'television',
    'vs': 'versus',
}
SEVERAL_WORDS = {
    ('united', 'states', 'of', 'america'): 'usa',
    ('united', 'states'): 'usa',
    ('united', 'kingdom'): 'uk',
    ('e', 'mail'): 'email',
    ('wi', 'fi'): 'wifi',
}
# Plurals that mean something else than several of the singular, or have none.
NO_PLURALS = frozenset(
    'aids airs arms ashes bases blues boxers brains briefs chess clothes communications cons '
    'contents customs damages dies directions does earnings forces furs futures glasses goes goods '
    'greens grounds headquarters hers humanities jeans lens letters lines looks manners mars means '
    'minutes news odds ours pains pants powers premises proceeds quarters regards remains returns '
    'rights sales savings scales securities series shades shorts slacks species spectacles spirits '
    'terms thanks theirs this thus times trousers trunks values waters woods works yours'.split()
)
# After a number the case of these counts: milliwatts and megawatts, bits and bytes.
CASED_UNIT = re.compile(r'(?:[kmgtp]?[wbv]|[kmgt]?bps|[kmg]?(?:pa|hz|wh)|[kmgt])', re.I)
