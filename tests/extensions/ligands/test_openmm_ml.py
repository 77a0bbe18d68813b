"""A potential of OpenMM-ML, by its name, in a fit: a stand-in is registered as its users register theirs."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import ClassVar

import numpy as np
import openmm
import pytest
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.extensions.ligands import potentials
from openmm_density.extensions.ligands.openmm_ml import check_known
from openmm_density.extensions.ligands.potentials import LigandSources, find_potentials
from openmm_density.models import prepare

from ...contexts import context_of
from ...models.test_ligands import BONDS, PLACES, SMILES

LENGTHS = np.linalg.norm(PLACES[[a for a, _ in BONDS]] - PLACES[[b for _, b in BONDS]], axis=1) / 10
STIFFNESS = 20_000.0


class Springs:
    """A potential of OpenMM-ML's kind: springs along acetamide's bonds."""

    def createImpl(self, name, **args):
        return self

    def addForces(self, topology, system, atoms, forceGroup, **args):
        all_atoms = list(topology.atoms())
        own = [atom.index for atom in all_atoms] if atoms is None else list(atoms)
        assert [all_atoms[k].element.symbol for k in own] == list("CCONHHHHH")
        force = openmm.HarmonicBondForce()
        for (a, b), length in zip(BONDS, LENGTHS):
            force.addBond(own[a], own[b], length, STIFFNESS)
        system.addForce(force)


class MLPotential:
    """What is used of OpenMM-ML's class, which asks for a newer OpenMM than the tests run with."""

    _implFactories: ClassVar[dict] = {}

    def __init__(self, name, **args):
        self._impl = MLPotential._implFactories[name].createImpl(name, **args)

    @staticmethod
    def registerImplFactory(name, factory):
        MLPotential._implFactories[name] = factory


@pytest.fixture
def openmmml(monkeypatch):
    try:
        import openmmml as module
    except ImportError:
        module = ModuleType("openmmml")
        module.MLPotential = MLPotential
        monkeypatch.setitem(sys.modules, "openmmml", module)
    module.MLPotential.registerImplFactory("springs", Springs())
    yield module
    del module.MLPotential._implFactories["springs"]


@pytest.fixture
def acetamide(agreed, monkeypatch):
    monkeypatch.setattr(potentials, "_molecule", lambda name, smiles: agreed.ligand)
    monkeypatch.setattr(potentials, "_charges", lambda ligand: agreed.charges)


SOURCES = LigandSources({"ACM": SMILES}, ligand_forcefield="openmmml:springs")


def test_it_stands_in_for_a_distilled_one(model, openmmml, acetamide):
    found = find_potentials(model, app.ForceField("amber14/protein.ff14SB.xml"), SOURCES)
    known = found.by_name["ACM"]
    assert found.paths == [] and found.notes == [] and known.version.endswith(", springs")
    assert known.energy(known.positions / 10) == pytest.approx(0.0, abs=1e-6)
    assert known.disagreement(known.positions / 10) == 0.0 and len(known.sha256) == 64

    prepared = prepare(model, ligand_forcefield="openmmml:springs", ligand_potentials=found.by_name)
    assert [placed.label for placed in prepared.potentials] == ["A ACM 501", "A ACM 502"]
    system = prepared.system(constraints=None, rigidWater=False)
    context = context_of(system)
    placed = prepared.potentials[1]
    positions = prepared.positions / 10
    positions[placed.atoms[0]] += 0.01

    def energy():
        context.setPositions(positions)
        return context.getState(energy=True).getPotentialEnergy()._value

    with_it, strain = energy(), known.energy(positions[placed.atoms])
    context.setParameter(placed.parameter_name, 0.0)
    assert strain > 1.0 and with_it - energy() == pytest.approx(strain, rel=1e-3)


def test_what_it_cannot_describe_is_told_in_one_sentence(model, openmmml, acetamide, monkeypatch):
    def refuse(*arguments, **options):
        raise ValueError("it knows\nacetamide only")

    monkeypatch.setattr(openmmml.MLPotential._implFactories["springs"], "addForces", refuse, raising=False)
    with pytest.raises(InputError) as told:
        find_potentials(model, app.ForceField("amber14/protein.ff14SB.xml"), SOURCES)
    assert str(told.value).startswith(f"{SMILES}: OpenMM-ML's springs cannot describe it (it knows acetamide")
    assert "\n" not in str(told.value)


def test_names_that_it_does_not_know_are_refused(openmmml):
    with pytest.raises(
        InputError, match=r"must name a potential of OpenMM-ML, found openmmml:bananas: use openmmml: and"
    ):
        check_known("openmmml:bananas")


def test_where_it_is_not_installed_a_sentence_says_how(monkeypatch):
    monkeypatch.setitem(sys.modules, "openmmml", None)
    with pytest.raises(InputError) as told:
        check_known("openmmml:ani2x")
    assert "needs OpenMM-ML" in str(told.value) and "conda install -c conda-forge openmm-ml" in str(
        told.value
    )
    assert "\n" not in str(told.value)
