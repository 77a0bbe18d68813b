"""The script for Coot, run with a module that stands for Coot's."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

from openmm_density.report.viewers.coot import coot_script

from .scenes import NASTY, scene_of

COOT = (
    "handle_read_ccp4_map",
    "handle_read_draw_molecule_with_recentre",
    "set_molecule_name",
    "set_contour_level_absolute",
    "set_map_colour",
    "set_draw_solid_density_surface",
    "set_solid_density_surface_opacity",
    "set_draw_map_standard_lines",
    "set_molecule_bonds_colour_map_rotation",
    "set_mol_displayed",
)
"""Functions that Coot 0.9 and 1.3 both have."""
LIST_OF_09, LIST_OF_1 = "interesting_things_gui", "read_interesting_places_json_file"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a script in a folder and returns what was called of a Coot, and what was printed."""

    def carried_out(text, *lists, folder="run", readable=True):
        calls, coot, opened = [], ModuleType("coot"), iter(range(100))

        def stub(name):
            def called(*arguments):
                if name == LIST_OF_1:
                    arguments = (json.loads(Path(arguments[0]).read_text()),)
                calls.append((name, *arguments))
                if name.startswith("handle_read"):
                    return next(opened) if readable else -1
                return None

            return called

        for name in (*COOT, *lists):
            setattr(coot, name, stub(name))
        monkeypatch.setitem(sys.modules, "coot", coot)
        path = tmp_path / folder / "fitted_coot.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(path))
        return path.parent, calls, capsys.readouterr().out

    return carried_out


def test_it_opens_map_and_models_of_its_folder_at_the_level(run):
    folder, calls, said = run(coot_script(scene_of("said"), "1.0"), LIST_OF_1, folder="with space é '\"")
    assert calls[0] == ("handle_read_ccp4_map", str(folder / "fitted_map.mrc"), 0)
    assert ("set_molecule_name", 0, "map: said") in calls
    assert ("set_contour_level_absolute", 0, 0.25) in calls
    assert ("set_draw_solid_density_surface", 0, 1) in calls
    assert ("set_solid_density_surface_opacity", 0, 0.4) in calls
    opened = [call[1:] for call in calls if call[0] == "handle_read_draw_molecule_with_recentre"]
    assert opened == [
        (str(folder / f"{role}.pdb"), centres)
        for role, centres in (("before", 0), ("fitted", 1), ("reference", 0))
    ]
    assert ("set_mol_displayed", 1, 0) in calls and ("set_mol_displayed", 2, 1) in calls
    assert "doubt: said" in said and "has no" not in said


def test_the_list_of_coot_1_has_a_section_for_each_doubt(run):
    _, calls, _ = run(coot_script(scene_of("said"), "1.0"), LIST_OF_09, LIST_OF_1)
    name, listed = calls[-1]
    assert name == LIST_OF_1 and listed["title"] == "openmm-density: doubts"
    assert listed["sections"] == [
        {
            "title": "said",
            "items": [
                {"label": "said", "position-type": "by-coordinates", "position": [1.5, -2.0, 3.25]},
                {"label": "said too", "position-type": "by-residue-spec", "residue-spec": ["A", 20, ""]},
            ],
        },
        {"title": "of all: said", "items": []},
    ]


def test_the_list_of_coot_09_has_a_line_for_each_place(run):
    _, calls, _ = run(coot_script(scene_of("said"), "1.0"), LIST_OF_09)
    assert calls[-1] == (
        LIST_OF_09,
        "openmm-density: doubts",
        [
            ["said: new Ramachandran outliers", 1.5, -2.0, 3.25],
            ["said too: new Ramachandran outliers", 2, "A", 20, "", "CA", ""],
        ],
    )


@pytest.mark.parametrize("text", NASTY)
def test_no_text_becomes_python(run, text):
    script = coot_script(scene_of(text), "1.0")
    assert script.isascii()
    plain = ast.parse(coot_script(scene_of(), "1.0"))
    assert [type(node) for node in ast.walk(ast.parse(script))] == [type(node) for node in ast.walk(plain)]
    folder, calls, _ = run(script, LIST_OF_1)
    assert ("set_molecule_name", 0, f"map: {text}") in calls
    assert calls[-1][1]["sections"][0]["title"] == text
    assert [path.name for path in folder.parent.rglob("*")] == ["run", "fitted_coot.py"]


def test_a_coot_that_lacks_a_function_or_reads_nothing_says_so(run):
    _, calls, said = run(coot_script(scene_of(), "1.0"))
    assert "this Coot has no interesting_things_gui" in said and len(calls) > 5
    _, calls, said = run(coot_script(scene_of(), "1.0"), LIST_OF_09, folder="other", readable=False)
    assert "the map could not be read" in said and "could not read fitted.pdb" in said
    # Without the model there is still the place of the first.
    assert len(calls[-1][2]) == 1
