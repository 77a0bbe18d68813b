"""Systems with other constraints and masses are derived from one, and are those that OpenMM makes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.models import prepare
from openmm_density.models.preparation.constrained_variants import ConstrainedVariants
from openmm_density.models.structures import read_model

from ..fragments import write_fragment
from ..small_models import hetatm, written

serialized = openmm.XmlSerializer.serialize
OPTIONS = [
    {"constraints": app.HBonds},
    {"constraints": app.HBonds, "hydrogenMass": 3.0 * unit.dalton},
    {"constraints": None, "rigidWater": False},
    {"constraints": None, "rigidWater": False, "hydrogenMass": 1.5 * unit.dalton},
    {"constraints": app.AllBonds},
    {"constraints": None},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Some residues beside two waters."""
    folder = tmp_path_factory.mktemp("model")
    lines = write_fragment(folder / "m.pdb", residues=9).read_text().splitlines()
    places = np.array([[30.0, 0.0, 0.0], [33.0, 0.0, 0.0]])
    waters = [hetatm(900 + k, "O", "HOH", 900 + k, place, "O") for k, place in enumerate(places)]
    atoms = [line for line in lines if line.startswith(("ATOM", "TER"))]
    return read_model(written(folder / "with_waters.pdb", [*atoms, *waters, "END"]))


@pytest.mark.parametrize(
    ("forcefield", "solvent"), [("amber14", "none"), ("charmm36", "none"), ("amber14", "obc")]
)
def test_each_is_that_of_the_force_field(model, forcefield: str, solvent: str) -> None:
    prepared = prepare(model, forcefield, solvent=solvent)
    assert sum(residue.name == "HOH" for residue in prepared.topology.residues()) == 2
    for options in OPTIONS:
        asked = prepared._options() | options
        assert serialized(prepared._variants.system(asked)) == serialized(prepared._parametrised(**asked))


def test_templates_before_openmm_8_5_have_no_constraints(model) -> None:
    prepared = prepare(model)
    older = SimpleNamespace(_templates={"ALA": SimpleNamespace()})
    variants = ConstrainedVariants(prepared.topology, older, prepared._parametrised)
    asked = prepared._options() | OPTIONS[0]
    assert serialized(variants.system(asked)) == serialized(prepared._variants.system(asked))
