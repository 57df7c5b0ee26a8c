"""Whether a line looks like one language rather than another: by its script, or by the most frequent function words of both.

Languages that are not in these tables are never reported. A line needs several such words, so names, numbers
and short lines are never judged.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_LATIN = frozenset({"LATIN"})
_CYRILLIC = frozenset({"CYRILLIC"})
SCRIPTS: dict[str, frozenset[str]] = {
    **dict.fromkeys("ru uk bg sr mk be kk".split(), _CYRILLIC),
    **dict.fromkeys("ar fa ur ps".split(), frozenset({"ARABIC"})),
    **dict.fromkeys("hi mr ne".split(), frozenset({"DEVANAGARI"})),
    "el": frozenset({"GREEK"}),
    "he": frozenset({"HEBREW"}),
    "th": frozenset({"THAI"}),
    "ka": frozenset({"GEORGIAN"}),
    "hy": frozenset({"ARMENIAN"}),
    "bn": frozenset({"BENGALI"}),
    "ta": frozenset({"TAMIL"}),
    "ko": frozenset({"HANGUL"}),
    "zh": frozenset({"CJK"}),
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}),
}
FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the a an of and to in is are was were on with for at by from that this "
        "it his her their he she they as has have",
        "de": "der die das den dem des ein eine einen einem einer und ist sind mit auf im zu von für nicht sich es er sie "
        "wird werden hat in was so als auch an am bei nach über vor ihr ihre sein seine",
        "fr": "a on le la les un une des du de et est sont dans sur avec pour que qui en au aux il "
        "elle ne pas ce cette sa son ses",
        "es": "el la los las un una unos de del y es son en con por para que se su al lo no como está están",
        "it": "il lo la gli le un una di del della dei e è sono in con per che si su nel al non come da alla a in i",
        "pt": "o a os as um uma de do da dos das e é são em no na com por para que se ao não como está sua seu",
        "nl": "de het een en van is zijn met op in voor te dat die aan niet door naar bij hij zij ze wordt om uit "
        "was had he",
        "sv": "en ett och är på med för av i som att det den till har inte från sin han hon de hade was",
        "da": "at have en et og er på med for af i som at det den til har ikke fra sin han hun de",
        "no": "at have en et og er på med for av i som at det den til har ikke fra sin han hun de",
        "fi": "ja on ei se että hän joka ovat oli mutta kun niin tai myös kuin ole",
        "pl": "i w na z jest są się do że nie to o jak przez od po za przy który która",
        "cs": "a v na z je jsou se do že ne to o jak od po za při který která s ve",
        "ro": "și în pe cu este sunt un o de la din pentru că nu care se al ale lui",
        "hu": "a az és egy van vannak nem hogy is ezt azt meg de mint egyik",
        "tr": "ve bir bu da de için ile çok var olan olarak ne gibi daha o",
    }.items()
}
# FLORES-200, as NLLB names languages, has codes of three letters.
_SHORT = dict(
    code.split("=")
    for code in (
        "als=sq arb=ar bel=be ben=bn bul=bg cat=ca ces=cs dan=da deu=de ell=el eng=en epo=eo est=et eus=eu fin=fi fra=fr "
        "gle=ga glg=gl heb=he hin=hi hrv=hr hun=hu hye=hy ind=id isl=is ita=it jpn=ja kat=ka kor=ko lit=lt lvs=lv mkd=mk "
        "nld=nl nob=no npi=ne pes=fa pol=pl por=pt ron=ro rus=ru slk=sk slv=sl spa=es srp=sr swe=sv swh=sw tam=ta tgl=tl "
        "tha=th tur=tr ukr=uk urd=ur vie=vi zho=zh zsm=ms"
    ).split()
)
_WORD = re.compile(r"[^\W\d_]+")
FEWEST_WORDS = 2  # function words of the other language
FEWEST_LETTERS = 12  # of another script; logographs say more each
LOGOGRAPHS = 5


def looks_like(text: str, other: str, own: str) -> bool:
    """Whether ``text``, which should be in the language ``own``, looks like ``other``. Both are language codes."""
    own, other = short_code(own), short_code(other)
    scripts, others = _scripts(own), _scripts(other)
    if not scripts or not others:
        return False
    if scripts.isdisjoint(others):
        return _is_in(text, others)
    mine, theirs = FUNCTION_WORDS.get(own, frozenset()), FUNCTION_WORDS.get(other, frozenset())
    words = _WORD.findall(text.lower())
    foreign = sum(word in theirs and word not in mine for word in words)
    if foreign < FEWEST_WORDS or 6 * foreign < len(words):
        return False
    return not any(word in mine and word not in theirs for word in words)


def _is_in(text: str, scripts: frozenset[str]) -> bool:
    letters = [character for character in text if character.isalpha()]
    inside = sum(_script(character) in scripts for character in letters)
    fewest = LOGOGRAPHS if "CJK" in scripts else FEWEST_LETTERS
    return inside >= fewest and 10 * inside >= 9 * len(letters)


@cache
def _script(character: str) -> str:
    return unicodedata.name(character, "").partition(" ")[0]


def _scripts(language: str) -> frozenset[str]:
    return SCRIPTS.get(language) or (_LATIN if language in FUNCTION_WORDS else frozenset())


def short_code(language: str) -> str:
    """Return ``en`` of en_US, en-GB and eng_Latn."""
    code = re.split(r"[_-]", language.lower())[0]
    return _SHORT.get(code, code)
