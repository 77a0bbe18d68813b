"""The script for ChimeraX: commands of its user guide only, whatever files, chains and sentences are called."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from urllib.parse import unquote

import pytest

from openmm_density.report.viewers.chimerax import as_html, chimerax_script, quoted, residue_spec

from .chimerax_commands import commands_of, understood
from .scenes import NASTY, ROWS, residues, scene_of

LINK = re.compile(r'<a href="cxcmd:([^"]*)">(.*?)</a>')


def html_of(script):
    (found,) = [match["html"] for match in commands_of(script) if "html" in match.groupdict()]
    return found


def shown(markup):
    """Return the text of HTML as a browser shows it, with references that have no semicolon."""
    return html.unescape(re.sub(r"(&#\d+)<!---->", r"\1;", markup))


@pytest.mark.parametrize("text", NASTY)
def test_no_text_becomes_a_command(text):
    script = chimerax_script(scene_of(text), "1.0")
    expected = chimerax_script(scene_of(), "1.0")
    names = [match[0].split()[0] for match in commands_of(script)]
    assert names == [match[0].split()[0] for match in commands_of(expected)]
    assert len(script.splitlines()) == len(expected.splitlines())
    assert "<script" not in script
    # Links do the same, once they are decoded and divided.
    links, plain = (LINK.findall(html_of(each)) for each in (script, expected))
    assert [unquote(link) for link, _ in links] == [unquote(link) for link, _ in plain]
    for link, _ in links:
        assert understood(unquote(link))


@pytest.mark.parametrize("text", NASTY)
def test_text_is_shown_as_it_is_but_for_what_no_line_can_hold(text):
    expected = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    assert shown(as_html(text)) == expected
    # Escapes are those of Python.
    resolved = re.sub(
        r"\\x(..)|\\u(....)|\\U(........)",
        lambda match: chr(int(next(filter(None, match.groups())), 16)),
        quoted(text)[1:-1],
    )
    assert resolved == expected and quoted(text)[1:-1].count('"') == 0


def test_a_place_is_a_link_that_selects_its_residues():
    (first, label), (second, _) = LINK.findall(html_of(chimerax_script(scene_of(), "1.0")))[3:]
    assert label == "said" and unquote(first).startswith("select #3/A:12-14 ; show sel atoms ; view sel")
    assert unquote(second).startswith("select #3/A:20,20B/B:-3 ;")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS[:3], "#3/A:12-14"),
        (residues(("A", 1, ""), ("A", 3, ""), ("A", 4, "")), "#3/A:1,3-4"),
        (residues(("A", 5, "A"), ("A", 5, "B"), ("A", 6, "")), "#3/A:5A,5B,6"),
        (residues(("A", -2, ""), ("A", -1, "")), "#3/A:-2--1"),
        (residues(("ABCD", 1, "")), "#3/ABCD:1"),
        # Without a way to name a chain, the numbers of all.
        (residues((" ", 7, "")), "#3:7"),
        (residues((";", 7, ""), ("*", 8, ""), ("'", 9, "")), "#3:7:8:9"),
        (residues(("A", 7, ";")), ""),
        ((), ""),
    ],
)
def test_residues_are_named_as_chimerax_names_them(rows, expected):
    assert residue_spec(3, rows) == expected
    if expected:
        assert understood(f"select {expected}")


def test_the_map_opens_at_the_level_and_is_transparent():
    script = chimerax_script(scene_of(level=0.0123456789), "1.0")
    assert "volume #1 style surface step 1 level 0.0123457 color #adb5bd\n" in script
    assert "transparency #1 60 target s\n" in script
    assert " level" not in chimerax_script(scene_of(level=None), "1.0")
    commands_of(chimerax_script(scene_of(level=-1.5e-7), "1.0"))


def test_what_is_not_there_is_not_opened():
    script = chimerax_script(
        replace(scene_of(), map_file=None, doubts=(), models=scene_of().models[1:2]), "1.0"
    )
    opened = [match[0] for match in commands_of(script) if match[0].startswith("open")]
    assert opened == ["open fitted.pdb id 2"] and "No doubts" in html_of(script)
    assert "volume" not in script and "hide #2 models" not in script
