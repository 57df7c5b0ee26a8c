"""Complete the last word of a line. Shells run this text without the packages of nmt, whose import takes too long.

Arguments: the words up to the cursor. Standard input: the tables of ``nmt_cli/shell/completion.py``. Output: ``files`` if
paths complete the word too, else ``words``; then a line for each word, with its meaning after a tab.
"""

import sys

FILES, FREE, LIST = "@", "-", "*"

Words = dict[str, str]  # with their meanings


def offers(table: dict[str, tuple[str, str]], words: list[str], current: str) -> tuple[bool, Words]:
    """Return whether paths may complete ``current``, and words. ``table``: by word its values and meaning."""
    key, equals, _ = current.partition("=")
    flag = max((place for place, word in enumerate(words) if word.startswith("-")), default=-1)
    values = start = ""
    if equals:
        start = f"{key}="
        values, _ = table.get(start) or table.get(key) or (FREE, "")
    elif flag >= 0 and not current.startswith("-"):
        values, _ = table.get(words[flag], ("", ""))
        if flag < len(words) - 1 and not values.startswith(LIST):  # it has its value
            values = ""
    names = values.lstrip(LIST)
    if names in (FILES, FREE):
        return names == FILES, {}
    if names:
        start = current[: current.rfind(",") + 1] or start
        return False, {start + name: "" for name in names.split()}
    offered = Words()
    for word, (_, meaning) in table.items():
        section, dot, _ = word.partition(".")
        if dot and "." not in current and not word.startswith("-"):  # first the section, then its keys
            word, meaning = f"{section}.", f"options of {section}"
        if word != FILES and (current.startswith("-") or not word.startswith("-")):
            offered[word] = meaning
    return FILES in table and not current.startswith("-"), offered


def main() -> None:
    program, *words, current = sys.argv[1:]
    program = program.rpartition("/")[2]
    if program == "nmt" and words:  # nmt train ... is nmt-train ...
        program = f"nmt-{words.pop(0)}"
    rows = [line.rstrip("\n").split("\t") for line in sys.stdin]
    table = {word: (values, meaning) for name, word, values, meaning in rows if name == program}
    files, offered = offers(table, words, current)
    print("files" if files else "words")
    for word, meaning in offered.items():
        if word.startswith(current):
            print(f"{word}\t{meaning}")


if __name__ == "__main__":
    main()
