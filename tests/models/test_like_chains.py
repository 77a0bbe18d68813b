"""Of like chains the force field describes one: the System is the one that OpenMM makes of all."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.models import prepare
from openmm_density.models.preparation import like_chains
from openmm_density.models.preparation.like_chains import described, parts_of, system_of_kinds
from openmm_density.models.structures import read_model

from ..fragments import write_fragment


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    """Topologies of two different chains, with hydrogens."""
    folder = tmp_path_factory.mktemp("chains")
    lengths = {"short": 4, "long": 7}
    paths = {name: write_fragment(folder / f"{name}.pdb", residues=n) for name, n in lengths.items()}
    return {name: prepare(read_model(path)).topology for name, path in paths.items()}


def joined(*topologies: app.Topology) -> app.Topology:
    """Return the topology of several, one behind the other."""
    nowhere = [np.zeros((each.getNumAtoms(), 3)) * unit.nanometer for each in topologies]
    modeller = app.Modeller(topologies[0], nowhere[0])
    for topology, positions in zip(topologies[1:], nowhere[1:]):
        modeller.add(topology, positions)
    return modeller.topology


def creating(*files: str, **options):
    """Return what describes a topology by force field files, and the numbers of atoms of those that it described."""
    field, asked = app.ForceField(*files), []

    def create(topology, templates):
        asked.append(topology.getNumAtoms())
        named = {
            residue: templates[residue.index] for residue in topology.residues() if residue.index in templates
        }
        return field.createSystem(topology, residueTemplates=named, removeCMMotion=False, **options)

    return create, asked


def in_order(system: openmm.System) -> list[str]:
    """Return all that a System holds, the terms of each force in the order of their text."""
    root = ElementTree.fromstring(openmm.XmlSerializer.serialize(system))
    for element in root.iter():  # the space between elements depends on their order
        element.text = element.tail = None
    for element in [*root.iter("Force"), root]:
        for listed in element:
            if listed.tag not in ("Particles", "Forces"):
                listed[:] = sorted(listed, key=ElementTree.tostring)
    return [ElementTree.tostring(each).decode() for each in root.iter() if not len(each)]


CUT = {"nonbondedMethod": app.CutoffNonPeriodic, "nonbondedCutoff": 1.0 * unit.nanometer}


@pytest.mark.parametrize(
    ("files", "options"),
    [
        (["amber14-all.xml"], CUT | {"constraints": app.HBonds, "flexibleConstraints": True}),
        (["amber99sb.xml", "amber99_obc.xml"], {"constraints": app.HBonds, "hydrogenMass": 3.0}),
        (["amber14-all.xml"], {"nonbondedMethod": app.PME, "nonbondedCutoff": 1.0 * unit.nanometer}),
        (["amber14-all.xml", "implicit/gbn2.xml"], {"constraints": app.HBonds}),
        (["charmm36.xml"], CUT | {"constraints": app.AllBonds}),
    ],
)
def test_the_system_is_that_of_all_chains(chains, files, options, monkeypatch) -> None:
    monkeypatch.setattr(like_chains, "LEAST_COPIED", 1)
    short, long = chains["short"], chains["long"]
    topology = joined(long, short, long, long, short, long)
    topology.setUnitCellDimensions(openmm.Vec3(9, 8, 7))
    create, asked = creating(*files, **options)
    made = system_of_kinds(topology, {}, create)
    assert asked == [long.getNumAtoms() + short.getNumAtoms()]
    whole = create(topology, {})
    assert made.getNumConstraints() == whole.getNumConstraints() and in_order(made) == in_order(whole)


def test_parts_are_told_apart_by_residues_templates_and_bonds(chains) -> None:
    short, long = chains["short"], chains["long"]
    topology = joined(long, long, short, long, long)
    assert parts_of(topology, {}).kinds.tolist() == [0, 0, 1, 0, 0]
    second = long.getNumResidues() + 2
    told = parts_of(topology, {second: "ALA"})
    assert told.kinds.tolist() == [0, 1, 2, 0, 0]
    assert told.residues[1].tolist() == list(range(long.getNumResidues(), 2 * long.getNumResidues()))
    assert [len(each) for each in told.atoms] == [long.getNumAtoms()] * 2 + [short.getNumAtoms()]
    # A bond to the next chain but one takes the chain between along.
    firsts = [next(chain.atoms()) for chain in topology.chains()]
    topology.addBond(firsts[3], firsts[1])
    found = parts_of(topology, {})
    assert found.kinds.tolist() == [0, 1, 0]
    assert len(found.atoms[1]) == 2 * long.getNumAtoms() + short.getNumAtoms()


def test_other_topologies_are_described_as_a_whole(chains, monkeypatch) -> None:
    create, asked = creating("amber14-all.xml", **CUT)
    alike = joined(*[chains["short"]] * 3)
    assert system_of_kinds(alike, {}, create) is None and not asked  # small ones
    monkeypatch.setattr(like_chains, "LEAST_COPIED", 1)
    assert system_of_kinds(joined(chains["short"], chains["long"]), {}, create) is None and not asked
    named = {1: "ALA", chains["short"].getNumResidues() + 1: "GLY"}
    assert system_of_kinds(alike, named, create) is None and not asked
    # What is wrong is told of the whole, and so is what joins chains.
    made = []
    unknown = joined(*[chains["short"]] * 3)
    for chain in unknown.chains():
        atoms = list(chain.atoms())
        unknown.addBond(atoms[0], atoms[6])
    assert system_of_kinds(unknown, {}, create) is None
    with pytest.raises(ValueError, match=r"residue 0 \(MET\)"):
        create(unknown, {})

    def joining(topology, templates):
        system = create(topology, templates)
        made.append(system)
        bonds = next(each for each in system.getForces() if isinstance(each, openmm.HarmonicBondForce))
        bonds.addBond(0, system.getNumParticles() - 1, 0.1, 1.0)
        return system

    pair = joined(*[chains["short"], chains["long"]] * 3)
    assert system_of_kinds(pair, {}, joining) is None and len(made) == 1
    # With virtual sites, which depend on other particles.
    water = app.Topology()
    chain = water.addChain()
    for _ in range(2):
        residue = water.addResidue("HOH", chain)
        oxygen = water.addAtom("O", app.element.oxygen, residue)
        for name in ("H1", "H2"):
            water.addBond(oxygen, water.addAtom(name, app.element.hydrogen, residue))
        water.addAtom("M", None, residue)
    create, asked = creating("amber14/tip4pew.xml", **CUT)
    assert system_of_kinds(joined(*[water] * 4), {}, create) is None and asked == [8]


def test_a_force_field_with_a_script_describes_all_chains(chains, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(like_chains, "LEAST_COPIED", 1)
    topology = joined(*[chains["short"]] * 3)
    (tmp_path / "script.xml").write_text(
        "<ForceField><Script>sys.addConstraint(0, topology.getNumAtoms() - 1, 1.0)</Script></ForceField>"
    )
    field = app.ForceField("amber14-all.xml", str(tmp_path / "script.xml"))
    system = described(field, topology, {}, **CUT)
    *_, (*pair, _) = map(system.getConstraintParameters, range(system.getNumConstraints()))
    assert pair == [0, topology.getNumAtoms() - 1]
