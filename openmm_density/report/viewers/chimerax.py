"""A command script for ChimeraX.

A line holds commands, separated by semicolons. Two rules keep what a file, a chain or a sentence says from becoming a command:
text in quotes has escapes for all that is not plain (`quoted`), and HTML, which ends at the first semicolon and in which a word
that begins with a quotation mark is taken for quoted text, has numeric references without a semicolon for it (`as_html`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from .scene import AFTER, BEFORE, FITTED, REFERENCE, Scene

COLOURS = {BEFORE: "#8b95a5", FITTED: "#1f6feb", AFTER: "#e8590c", REFERENCE: "#d1495b"}
"""As in the pictures."""
MAP_COLOUR, MAP_TRANSPARENCY = "#adb5bd", 60
MAP_NUMBER = 1

# What needs no escape, in quotes and in HTML; letters of any script beside it.
_PLAIN = re.compile(r"[\w .,:/()+=\[\]-]")
_CHAIN = re.compile(r"[A-Za-z0-9_]+")
_INSERTION = re.compile(r"[A-Za-z]?")


def chimerax_script(scene: Scene, version: str) -> str:
    """Return a script that shows a fit, the map as model 1; its paths are within the folder, where ChimeraX runs it."""
    numbers = {model.role: number for number, model in enumerate(scene.models, MAP_NUMBER + 1)}
    lines = [
        f"# Written by openmm-density {version}: open it in ChimeraX, or type chimerax fitted.cxc",
        *_map_lines(scene),
        *(
            line
            for model in scene.models
            for line in (
                f"open {model.file} id {numbers[model.role]}",
                f"rename #{numbers[model.role]} {quoted(model.title)}",
            )
        ),
    ]
    every = f"#{min(numbers.values())}-{max(numbers.values())}"
    lines += [
        f"hide {every} atoms",
        f"cartoon {every}",
        f"style {every} stick",
        f"show {every} & ligand atoms",
    ]
    lines += [f"color #{number} {COLOURS[role]}" for role, number in numbers.items()]
    lines += [f"color {every} byhetero"]
    lines += [f"hide #{numbers[role]} models" for role in (BEFORE, AFTER) if role in numbers]
    fitted = f"#{numbers[FITTED]}"
    lines += [f"view {fitted}", f"log html {_doubts(scene, numbers)}"]
    return "\n".join(lines) + "\n"


def _map_lines(scene: Scene) -> list[str]:
    """Return the commands that open the map and draw its surface."""
    if scene.map_file is None:
        return []
    level = "" if scene.level is None else f" level {scene.level:.6g}"
    return [
        f"open {scene.map_file} id {MAP_NUMBER}",
        f"rename #{MAP_NUMBER} {quoted(scene.map_title)}",
        f"volume #{MAP_NUMBER} style surface step 1{level} color {MAP_COLOUR}",
        f"transparency #{MAP_NUMBER} {MAP_TRANSPARENCY} target s",
    ]


def quoted(text: str) -> str:
    """Return text as one argument of a command, in double quotes.

    ChimeraX ends quoted text at a quotation mark that a space or a semicolon follows, also where a backslash stands before it:
    all but plain characters are therefore written as escapes, which it resolves as Python does.
    """
    return f'"{"".join(letter if _is_plain(letter) else _escape(letter) for letter in _one_line(text))}"'


def as_html(text: str) -> str:
    """Return text as HTML in an argument of ``log html``; a reference ends in a comment, as a semicolon ends the command."""
    return "".join(letter if _is_plain(letter) else f"&#{ord(letter)}<!---->" for letter in _one_line(text))


def _is_plain(letter: str) -> bool:
    return bool(_PLAIN.fullmatch(letter))


def _one_line(text: str) -> str:
    """Return text without what ends a line or cannot be written."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _doubts(scene: Scene, numbers: Mapping[str, int]) -> str:
    """Return the list of doubts as HTML, in which each place is a link that shows it."""
    shown = [f"{link(f'show #{numbers[role]} models', role)}" for role in numbers]
    parts = [f"<h3>openmm-density</h3><p>Models: {', '.join(shown)}.</p>"]
    if not scene.doubts:
        parts.append("<p>No doubts.</p>")
        return "".join(parts)
    parts.append("<p>Doubts: click on a place to see it.</p><ol>")
    for doubt in scene.doubts:
        places = [
            link(_show(spec), place.label)
            for place in doubt.places
            if (spec := residue_spec(numbers[FITTED], [scene.residues[row] for row in place.rows]))
        ]
        parts.append(f"<li>{as_html(doubt.sentence)}{'<br>' if places else ''}{', '.join(places)}</li>")
    return "".join([*parts, "</ol>"])


def _show(spec: str) -> str:
    """Return the commands that turn to residues."""
    return f"select {spec} ; show sel atoms ; view sel ; show {spec} models"


def link(commands: str, label: str) -> str:
    """Return a link of the log that runs commands."""
    return f'<a href="cxcmd:{quote(commands, safe="")}">{as_html(label)}</a>'


def residue_spec(model: int, residues: Sequence[Mapping[str, Any]]) -> str:
    """Return what names residues, as ``#3/A:134-138,140/B:7``; numbers of all chains where ChimeraX cannot name one (``;``)."""
    parts = []
    for chain, members in groupby(residues, key=lambda residue: residue["chain"].strip()):
        known = [
            (int(each["number"]), each["insertion_code"].strip())
            for each in members
            if _INSERTION.fullmatch(each["insertion_code"].strip())
        ]
        if known:
            parts.append(f"{f'/{chain}' if _CHAIN.fullmatch(chain) else ''}:{','.join(_ranges(known))}")
    return f"#{model}{''.join(parts)}" if parts else ""


def _ranges(numbers: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Join consecutive numbers, as in ``134-138``; those with insertion codes stand alone."""
    run: list[int] = []
    for number, insertion in [*numbers, (0, "end")]:
        if insertion == "" and (not run or number == run[-1] + 1):
            run.append(number)
            continue
        if run:
            yield f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}"
        run = [] if insertion else [number]
        if insertion not in ("", "end"):
            yield f"{number}{insertion}"
