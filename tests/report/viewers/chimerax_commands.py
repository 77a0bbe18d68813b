"""Commands of ChimeraX, as its user guide describes how a line is divided into them."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^;\s]*")
_DOUBLE, _SINGLE = (re.compile(rf"{mark}.*?{mark}(?=\s|;|$)") for mark in "\"'")


def divided(line: str) -> list[list[str]]:
    """Return the words of each command of a line, as ChimeraX divides it.

    Commands end at semicolons; a word that begins with a quotation mark goes on to the next such mark that a space, a semicolon
    or the end follows, whatever stands before it.
    """
    commands, words, place = [], [], 0
    while place < len(line):
        letter = line[place]
        if letter.isspace():
            place += 1
        elif letter == ";":
            commands.append(words)
            words, place = [], place + 1
        else:
            found = {'"': _DOUBLE, "'": _SINGLE}.get(letter, _WORD).match(line, place)
            assert found, f"incomplete quoted text: {line[place : place + 40]}"
            words.append(found[0])
            place = found.end()
    return [each for each in [*commands, words] if each]


def commands_of(script: str) -> list[list[str]]:
    """Return the words of the commands of a script, comments left out."""
    lines = [line.strip() for line in script.splitlines()]
    return [words for line in lines if line and not line.startswith("#") for words in divided(line)]
