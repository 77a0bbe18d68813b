"""Extensions are found where their packages are installed, and a fit knows of no other."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields

import pytest

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.fitting import FitExtension, Option, Protocol, Stage, installed_extensions, read_protocol
from openmm_density.fitting.options import PreparationOptions

from ..cli.commands import run
from ..conftest import PROJECT
from ..fragments import RESOLUTION, fragment

PAGE = (PROJECT / "docs" / "guide" / "extensions.md").read_text(encoding="utf-8")
SOURCE = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
DECLARED = re.search(r"^```toml\n.*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1].replace('"', "")


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Install the documented extension, without any of the package's own."""
    (tmp_path / "none.txt").write_text("")
    packages = tmp_path / "packages"
    (packages / "compactness-1.0.dist-info").mkdir(parents=True)
    (packages / "compactness.py").write_text(SOURCE)
    (packages / "compactness-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{installed_extensions.GROUP}]\n{DECLARED}"
    )
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(installed_extensions, "OWN", tmp_path / "none.txt")
    installed_extensions.extensions.cache_clear()
    yield tmp_path
    installed_extensions.extensions.cache_clear()
    sys.modules.pop("compactness", None)


def test_an_option_that_is_not_given_has_a_value_of_its_kind():
    kinds = {"kind": int}, {"kind": bool}, {"many": True}, {"kind": int, "default": 3}
    assert [Option("name", "help", **each).default for each in kinds] == [None, False, [], 3]


def test_the_documented_extension_takes_part_in_a_fit_without_the_packages_own(alone, capsys):
    model = fragment(alone / "model.pdb", residues=8)
    DensityMap.simulate(model.topology, model.positions, RESOLUTION, 1.25, margin=14.0).write(
        alone / "map.mrc"
    )
    command = (
        "fit",
        alone / "model.pdb",
        alone / "map.mrc",
        "--resolution",
        RESOLUTION,
        "--protocol",
        "quick",
    )
    command = (
        *command,
        "--steps",
        40,
        "--place",
        "off",
        "--platform=CPU",
        "--threads",
        1,
        "--strength",
        1,
        "--output",
        alone / "run",
    )
    assert run(*command, "--compact", -1) == 2
    assert "--compact must be 0 or more, found -1" in capsys.readouterr().err
    assert run(*command, "--replicas", 2) == 2
    assert not (alone / "run").exists()
    assert run(*command, "--compact", 500) == 0
    summary = json.loads((alone / "run" / "summary.json").read_text())
    radii = [radius for _, radius in summary["radius_after_stages"]]
    assert min(radii) < summary["radius_of_gyration"] - 0.05  # the model was kept as it was
    assert summary["units"]["radius_of_gyration"] == "Å"
    names = [stage["name"] for stage in summary["stages"]]
    assert [name for name, _ in summary["radius_after_stages"]] == names and len(names) > 1
    assert any(note.startswith("Radius of gyration: ") for note in summary["notes"])
    assert "--compact 500" in summary["command"] and "ensemble" not in summary
    assert "How compact is it?" in (alone / "run" / "report.html").read_text()


def test_potentials_of_ligands_are_asked_of_an_extension(alone):
    model = fragment(alone / "model.pdb", residues=8)
    asked = PreparationOptions("amber14", "none", "xtb", None, (), False)
    with pytest.raises(InputError, match="an extension with ligand_potentials, and none is installed"):
        asked.with_potentials(model, 1)


def test_what_can_be_done_without_an_extension_is(alone):
    assert installed_extensions.function_of_extension("best_of_models", max) is max


def test_what_a_file_asks_of_an_extension_that_is_not_there_is_refused(alone):
    path = alone / "mine.toml"
    path.write_text('search = "auto"\n[[stage]]\nsteps = 10\nregister = true\n')
    with pytest.raises(InputError, match=r'mine\.toml: stage 1 asks for "register", which an extension does'):
        read_protocol(path)
    path.write_text('search = "auto"\n[[stage]]\nsteps = 10\nregister = false\n')
    assert not read_protocol(path).stages[0].register


def test_what_protocols_ask_of_extensions_is_answered():
    keys = {field.name for kind in (Protocol, Stage) for field in fields(kind) if field.metadata}
    assert keys == installed_extensions.answered()


def test_entry_points_are_read_from_installed_packages_behind_the_own(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text(f"[{installed_extensions.GROUP}]\nsecond = a.b:C\nfirst = a.d:E\n\n[other]\nthird = f:G\n")
    for package, text in {
        "y-2.dist-info": f"[console_scripts]\nx = y:z\n[{installed_extensions.GROUP}]\nlast = y.z:Z\nfirst = not:Own\n",
        "x-1.egg-info": f"[{installed_extensions.GROUP}]\nearlier=x:X\n",
        "z-3.dist-info": "[console_scripts]\nz = z:z\n",
    }.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "entry_points.txt").write_text(text)
    (tmp_path / "damaged-1.dist-info").mkdir()
    (tmp_path / "damaged-1.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe")
    found = installed_extensions.declared_entry_points(
        own, [str(tmp_path), str(tmp_path), str(tmp_path / "nowhere")]
    )
    assert list(found.items()) == [
        ("second", "a.b:C"),
        ("first", "a.d:E"),
        ("earlier", "x:X"),
        ("last", "y.z:Z"),
    ]


def test_one_that_cannot_be_imported_is_named():
    with pytest.raises(ImportError, match=r"the extension broken of openmm-density \(no_such_module:A\)"):
        installed_extensions._loaded("broken", "no_such_module:A")


def test_every_extension_of_the_package_is_in_its_entry_points():
    declared = installed_extensions.declared_entry_points(installed_extensions.OWN, [])
    written = [
        path for path in installed_extensions.OWN.parent.rglob("*.py") if "(FitExtension)" in path.read_text()
    ]
    rooms = {path.relative_to(installed_extensions.OWN.parent).parts[0] for path in written}
    assert declared.keys() == rooms
    assert all(target.startswith(f"openmm_density.extensions.{name}") for name, target in declared.items())


def test_an_option_that_two_extensions_declare_is_there_once(monkeypatch):
    one, other = FitExtension(), FitExtension()
    one.options = (Option("copies", "an ensemble", int), Option("alone", "one"))
    other.options = (Option("copies", "with exchange, a ladder", int),)
    monkeypatch.setattr(installed_extensions, "extensions", lambda: (one, other))
    found = [(option.name, option.help) for option in installed_extensions.extension_options()]
    assert found == [("copies", "an ensemble; with exchange, a ladder"), ("alone", "one")]
