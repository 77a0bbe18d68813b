"""Commands of ChimeraX, as its user guide describes them: how a line is divided, and what each command that we write takes."""

from __future__ import annotations

import re

MODEL = r"#\d+(-\d+)?"
# https://www.cgl.ucsf.edu/chimerax/docs/user/commands/atomspec.html
NUMBER = r"-?\d+[A-Za-z]?"
RESIDUES = rf"(/[A-Za-z0-9_]+)?:{NUMBER}(-{NUMBER})?(,{NUMBER}(-{NUMBER})?)*"
SPEC = rf"{MODEL}({RESIDUES})*"
COLOUR = r"#[0-9a-f]{6}"

GRAMMAR = [
    # open file-name id model-id
    r"open [A-Za-z0-9_.]+ id \d+",
    # rename model-spec new-name
    rf'rename {MODEL} "[^"]*"',
    # volume model-spec style (surface | mesh | image) step N level threshold color color
    rf"volume {MODEL} style surface step 1( level -?\d+(\.\d+)?(e[-+]\d+)?)? color {COLOUR}",
    # transparency spec percent [target string]
    rf"transparency {MODEL} \d+ target [abcrsp]+",
    # (show | hide) [spec] [what]; what: atoms, models …; a specifier may intersect with a selector's name
    rf"(show|hide) ({SPEC}|sel)( & ligand)? (atoms|models)",
    rf"cartoon {SPEC}",
    rf"style {SPEC} (stick|ball|sphere)",
    rf"color {SPEC} ({COLOUR}|byhetero)",
    rf"select {SPEC}",
    rf"view ({SPEC}|sel)",
    # log html character string: up to the next semicolon or line's end
    r"log html (?P<html><.*>)",
]
"""What is written: the commands and options of the user guide that it uses."""

_WORD = re.compile(r"[^;\s]*")
_DOUBLE, _SINGLE = (re.compile(rf"{mark}.*?{mark}(?=\s|;|$)") for mark in "\"'")


class NotUnderstood(ValueError):
    """A line is no command that is known, or text in quotes does not end."""


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
            if found is None:
                raise NotUnderstood(f"incomplete quoted text: {line[place : place + 40]}")
            words.append(found[0])
            place = found.end()
    return [each for each in [*commands, words] if each]


def understood(line: str) -> list[re.Match[str]]:
    """Return what each command of a line matches in the grammar.

    Raises
    ------
    NotUnderstood
        Where one matches nothing.
    """
    matches = []
    for words in divided(line):
        text = " ".join(words)
        (match, *_) = [found for rule in GRAMMAR if (found := re.fullmatch(rule, text))] or [None]
        if match is None:
            raise NotUnderstood(text)
        matches.append(match)
    return matches


def commands_of(script: str) -> list[re.Match[str]]:
    """Return the commands of a script, comments left out."""
    lines = [line.strip() for line in script.splitlines()]
    return [match for line in lines if line and not line.startswith("#") for match in understood(line)]
