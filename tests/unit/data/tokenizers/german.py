"""German sentences that the tests of tokenizers learn from."""

TEXT = [
    f"{who} {verb} {what} , und {adverb} ."
    for who in ("ein Mann", "eine Frau", "das Kind", "der Hund")
    for verb in ("sieht", "kauft", "malt", "trägt")
    for what in ("ein Haus", "einen Baum", "eine Blume", "die Straße")
    for adverb in ("lacht", "springt", "geht fort")
]
