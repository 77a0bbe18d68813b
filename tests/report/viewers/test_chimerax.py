"""The script for ChimeraX: commands of its user guide only, whatever files, chains and sentences are called."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from openmm_density.report.viewers.chimerax import chimerax_script, residue_spec

from .chimerax_commands import commands_of
from .scenes import NASTY, ROWS, residues, scene_of

COMMANDS = set(
    [
        "open",
        "rename",
        "volume",
        "transparency",
        "show",
        "hide",
        "cartoon",
        "style",
        "color",
        "select",
        "view",
        "log",
    ]
)
LINK = re.compile(r'<a href="cxcmd:([^"]*)">(.*?)</a>')


def html_of(script):
    (found,) = [" ".join(words[2:]) for words in commands_of(script) if words[:2] == ["log", "html"]]
    return found


@pytest.mark.parametrize("text", NASTY)
def test_no_text_becomes_a_command(text):
    script = chimerax_script(scene_of(text), "1.0")
    expected = chimerax_script(scene_of(), "1.0")
    names = [words[0] for words in commands_of(script)]
    assert names == [words[0] for words in commands_of(expected)] and set(names) <= COMMANDS
    assert len(script.splitlines()) == len(expected.splitlines())
    assert "<script" not in script
    # Links do the same, once they are decoded and divided.
    links, plain = (LINK.findall(html_of(each)) for each in (script, expected))
    assert [unquote(link) for link, _ in links] == [unquote(link) for link, _ in plain]


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
