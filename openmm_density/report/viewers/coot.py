"""A Python script for Coot, from 0.9 (whose Python is 2.7) to 1.3.

What is told about a fit stands in it as one JSON text, in ASCII, within a raw string that it cannot end: no name or sentence is
ever read as Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...fitting.doubt import KINDS
from ...validation.named_residues import LocatedPlace
from .scene import BEFORE, FITTED, REFERENCE, Scene

COLOURS = {BEFORE: 30.0, FITTED: 0.0, REFERENCE: 200.0}
"""By which the hues of carbon atoms are turned, in degrees."""
MAP_COLOUR, MAP_OPACITY = (0.68, 0.71, 0.74), 0.4
TITLE = "openmm-density: doubts"


def coot_script(scene: Scene, version: str) -> str:
    """Return the text of a script that shows a fit."""
    told = {
        "map": None if scene.map_file is None else _map(scene),
        "models": [
            {
                "role": model.role,
                "file": model.file,
                "title": model.title,
                "hue": COLOURS.get(model.role, 120.0),
                "shown": model.role in (FITTED, REFERENCE),
            }
            for model in scene.models
        ],
        "doubts": [
            {
                "sentence": doubt.sentence,
                "about": KINDS.get(doubt.kind, doubt.sentence),
                "places": [_place(scene, place) for place in doubt.places],
            }
            for doubt in scene.doubts
        ],
        "title": TITLE,
    }
    return _SCRIPT.replace("VERSION", version).replace("SCENE", _in_raw_string(told))


def _map(scene: Scene) -> dict[str, Any]:
    return {
        "file": scene.map_file,
        "title": scene.map_title,
        "level": scene.level,
        "colour": MAP_COLOUR,
        "opacity": MAP_OPACITY,
    }


def _place(scene: Scene, place: LocatedPlace) -> dict[str, Any]:
    """Return the label, the centre where it is known, and the first residue of a place."""
    first: Mapping[str, Any] = scene.residues[place.rows[0]]
    return {
        "label": place.label,
        "centre": None if place.centre is None else list(place.centre),
        "residue": [first["chain"], first["number"], first["insertion_code"]],
        "atom": "CA" if first.get("kind", "polymer") == "polymer" else "",
    }


def _in_raw_string(told: Mapping[str, Any]) -> str:
    """Return JSON in which there is no single quote: a raw string in three of them holds it as it is."""
    return json.dumps(told, indent=1, ensure_ascii=True, allow_nan=False).replace("'", "\\u0027")


_SCRIPT = """\
# Written by openmm-density VERSION: shows a fit in Coot, by  coot --script fitted_coot.py
# or by Calculate > Run Script.
from __future__ import print_function

import json
import os
import sys
import tempfile


class OpenMMDensityFit(object):
    \"\"\"What to show, and how; nothing else gets a name among those of Coot.\"\"\"

    told = json.loads(r'''
SCENE
''')

    def show(self):
        # Coot 0.9 does not set __file__.
        self.folder = os.path.dirname(os.path.abspath(sys._getframe().f_code.co_filename))
        self.open_map()
        self.list_doubts(self.open_models())

    def text(self, value):
        \"\"\"Return text as Coot takes it: in Python 2 as bytes.\"\"\"
        return value if sys.version_info[0] > 2 else value.encode("utf-8")

    def function(self, name):
        \"\"\"Return a function of Coot; None where this version has none of that name.\"\"\"
        modules = ["__main__", "coot"]
        if sys.version_info[0] > 2:
            modules += ["coot_gui", "coot_utils"]
        for module in modules:
            try:
                __import__(module)
            except ImportError:
                continue
            if hasattr(sys.modules[module], name):
                return getattr(sys.modules[module], name)
        return None

    def call(self, name, *arguments):
        \"\"\"Call a function of Coot where it is there; return what it does.\"\"\"
        found = self.function(name)
        if found is None:
            print("openmm-density: this Coot has no " + name)
            return None
        return found(*arguments)

    def open_map(self):
        shown = self.told["map"]
        if shown is None:
            return
        number = self.call("handle_read_ccp4_map", os.path.join(self.folder, self.text(shown["file"])), 0)
        if number is None or number < 0:
            print("openmm-density: the map could not be read")
            return
        self.call("set_molecule_name", number, self.text(shown["title"]))
        if shown["level"] is not None:
            self.call("set_contour_level_absolute", number, shown["level"])
        self.call("set_map_colour", number, *shown["colour"])
        self.call("set_draw_solid_density_surface", number, 1)
        self.call("set_solid_density_surface_opacity", number, shown["opacity"])
        self.call("set_draw_map_standard_lines", number, 0)

    def open_models(self):
        \"\"\"Open the models; return the number of the fitted one.\"\"\"
        fitted = None
        for model in self.told["models"]:
            path = os.path.join(self.folder, self.text(model["file"]))
            is_fitted = model["role"] == "fitted"
            # The view goes to this one only.
            number = self.call("handle_read_draw_molecule_with_recentre", path, 1 if is_fitted else 0)
            if number is None or number < 0:
                print("openmm-density: could not read " + model["file"])
                continue
            self.call("set_molecule_name", number, self.text(model["title"]))
            self.call("set_molecule_bonds_colour_map_rotation", number, model["hue"])
            self.call("set_mol_displayed", number, 1 if model["shown"] else 0)
            if is_fitted:
                fitted = number
        return fitted

    def things(self, fitted):
        \"\"\"Return the places as interesting_things_gui takes them.\"\"\"
        found = []
        for doubt in self.told["doubts"]:
            for place in doubt["places"]:
                label = self.text(place["label"] + ": " + doubt["about"])
                if place["centre"] is not None:
                    found.append([label] + place["centre"])
                elif fitted is not None:
                    chain, number, insertion = place["residue"]
                    atom = [self.text(chain), number, self.text(insertion), self.text(place["atom"]), ""]
                    found.append([label, fitted] + atom)
        return found

    def sections(self):
        \"\"\"Return the places as Coot 1.1.17 and later take them.\"\"\"
        found = []
        for doubt in self.told["doubts"]:
            items = []
            for place in doubt["places"]:
                where = {"position-type": "by-residue-spec", "residue-spec": place["residue"]}
                if place["centre"] is not None:
                    where = {"position-type": "by-coordinates", "position": place["centre"]}
                items.append(dict(where, label=place["label"]))
            found.append({"title": doubt["sentence"], "items": items})
        return {"title": self.told["title"], "sections": found}

    def list_doubts(self, fitted):
        for doubt in self.told["doubts"]:
            print("openmm-density: doubt: " + self.text(doubt["sentence"]))
        if not self.told["doubts"]:
            print("openmm-density: no doubts")
        elif self.function("read_interesting_places_json_file") is not None:
            # The list of 0.9 needs a toolkit that later ones do not have.
            with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as listed:
                json.dump(self.sections(), listed)
            try:
                self.call("read_interesting_places_json_file", listed.name)
            finally:
                os.remove(listed.name)
        elif self.things(fitted):
            self.call("interesting_things_gui", self.text(self.told["title"]), self.things(fitted))


OpenMMDensityFit().show()
"""
