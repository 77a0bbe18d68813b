"""Ideal geometry, against gemmi's own topology of the same model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError
from openmm_density.models import Model, prepare, read_model
from openmm_density.models.chemistry.monomers.library import FOLDER_VARIABLE, TABLE, MonomerLibrary
from openmm_density.restraints import IdealGeometryRestraint
from openmm_density.validation.geometry import geometry_report
from openmm_density.validation.ideal_values import geometry_scores

from ..contexts import context_of, system_of
from ..small_models import ADK_CLOSED, fragment_lines, written

DICTIONARY = """\
data_comp_list
loop_
_chem_comp.id
_chem_comp.group
XYZ non-polymer
data_comp_XYZ
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
XYZ C1 C
XYZ O1 O
loop_
_chem_comp_bond.comp_id
_chem_comp_bond.atom_id_1
_chem_comp_bond.atom_id_2
_chem_comp_bond.type
_chem_comp_bond.value_dist
_chem_comp_bond.value_dist_esd
XYZ C1 O1 double 1.21 0.02
"""


@pytest.fixture(autouse=True)
def package_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def of_gemmi(path: Path, folder: str | None) -> tuple[float, float, int, int, int]:
    """Return RMS Z of bonds and angles, their numbers, and how many are beyond 4, of heavy atoms, by gemmi."""
    structure = gemmi.read_structure(str(path))
    structure.remove_hydrogens()
    structure.remove_waters()
    structure.setup_entities()
    library = gemmi.MonLib()
    if folder is None:
        library.read_monomer_doc(gemmi.cif.read(str(TABLE)))
    else:
        library.read_monomer_lib(os.path.join(folder, ""), structure[0].get_all_residue_names())
    topology = gemmi.prepare_topology(
        structure, library, 0, gemmi.HydrogenChange.Remove, ignore_unknown_links=True
    )
    z = [np.array([term.calculate_z() for term in terms]) for terms in (topology.bonds, topology.angles)]
    rms = [float(np.sqrt(np.mean(each**2))) for each in z]
    return (*rms, *map(len, z), sum(int((np.abs(each) > 4).sum()) for each in z))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", ["protein", "dna"])
def test_scores_are_those_of_gemmi(small_data: Path, name: str, given: bool) -> None:
    folder = os.environ.get("MONOMER_LIBRARY") if given else None
    if given and folder is None:
        pytest.skip("MONOMER_LIBRARY names no CCP4 monomer library")
    path = ADK_CLOSED if name == "protein" else small_data / "zoo/1bna_strand.pdb"
    model = read_model(path)
    scores = geometry_scores(model.topology, model.positions, folder)
    found = (
        scores.bond_rmsz,
        scores.angle_rmsz,
        scores.n_bonds,
        scores.n_angles,
        len(scores.outliers),
    )
    assert found == pytest.approx(of_gemmi(path, folder), rel=1e-6)
    assert scores.unknown == () and all(abs(each.z) > 4 for each in scores.outliers)


@pytest.fixture(scope="module")
def peptide(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Residues 1 to 12 with hydrogens."""
    path = tmp_path_factory.mktemp("peptide") / "peptide.pdb"
    return prepare(read_model(written(path, fragment_lines(small_data))))


def test_a_model_minimised_with_it_is_ideal_and_its_force_field_needs_no_other_bonds_or_angles(
    peptide: Model,
) -> None:
    rng = np.random.default_rng(1)
    start = peptide.positions + rng.normal(scale=0.15, size=peptide.positions.shape)
    restraint = IdealGeometryRestraint(peptide.topology, start)
    assert restraint.notes == [] and len(restraint.violations(start)) > 100
    held = {tuple(sorted(pair)) for pair in restraint.terms.bonds.atoms.tolist()}
    held |= {(min(i, k), j, max(i, k)) for i, j, k in restraint.terms.angles.atoms.tolist()}
    system = peptide.system(constraints=None, rigidWater=False)
    for force in system.getForces():
        if isinstance(force, openmm.HarmonicBondForce):
            pairs = [force.getBondParameters(n)[:2] for n in range(force.getNumBonds())]
            assert {tuple(sorted(pair)) for pair in pairs} <= held
        if isinstance(force, openmm.HarmonicAngleForce):
            triples = [force.getAngleParameters(n)[:3] for n in range(force.getNumAngles())]
            assert {(min(i, k), j, max(i, k)) for i, j, k in triples} <= held
    context = context_of(system_of(len(start), *restraint.create_forces()), start)
    openmm.LocalEnergyMinimizer.minimize(context, 0.1)
    end = context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)
    scores = geometry_scores(peptide.topology, end)
    assert scores.bond_rmsz < 0.1 and scores.angle_rmsz < 0.2 and scores.outliers == []
    assert restraint.violations(end) == []


def test_hydrogens_of_dna_and_its_ends_are_known(small_data: Path) -> None:
    model = prepare(read_model(small_data / "zoo/1bna_strand.pdb"))
    restraint = IdealGeometryRestraint(model.topology, model.positions)
    assert restraint.notes == []
    bonded = {tuple(sorted((a.index, b.index))) for a, b in model.topology.bonds()}
    assert {tuple(pair) for pair in restraint.terms.bonds.atoms.tolist()} == bonded


def test_it_is_stable_at_its_time_step_and_at_the_default_is_kT(peptide: Model) -> None:
    system = peptide.system()
    restraint = IdealGeometryRestraint(peptide.topology, peptide.positions)
    kT = unit.MOLAR_GAS_CONSTANT_R * 300 * unit.kelvin
    assert restraint.force_constant == pytest.approx(kT.value_in_unit(unit.kilojoule_per_mole), rel=1e-3)
    weak = IdealGeometryRestraint(peptide.topology, peptide.positions, restraint.force_constant / 4)
    assert weak.stable_timestep(system) == pytest.approx(2 * restraint.stable_timestep(system))
    for force in restraint.create_forces():
        system.addForce(force)
    integrator = openmm.VerletIntegrator(0.9 * restraint.stable_timestep(system))
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(peptide.positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, 1.0, 200)
    context.setVelocitiesToTemperature(300, 1)
    energies = []
    for _ in range(4):
        integrator.step(100)
        state = context.getState(energy=True)
        total = state.getKineticEnergy() + state.getPotentialEnergy()
        energies.append(total.value_in_unit(unit.kilojoule_per_mole))
    assert np.ptp(energies) < 0.1 * 1.5 * 2.494 * len(peptide.positions)


def renamed(model: Model, names: dict[str, str], residues: dict[str, str]) -> Model:
    topology = app.Topology()
    atoms = {}
    for chain in model.topology.chains():
        new_chain = topology.addChain(chain.id)
        for residue in chain.residues():
            new = topology.addResidue(residues.get(residue.name, residue.name), new_chain, residue.id)
            for atom in residue.atoms():
                atoms[atom] = topology.addAtom(names.get(atom.name, atom.name), atom.element, new)
    for a, b in model.topology.bonds():
        topology.addBond(atoms[a], atoms[b])
    return replace(model, topology=topology)


def test_hydrogens_of_other_names_are_known_by_their_bonds_and_other_residues_are_named(
    peptide: Model,
) -> None:
    plain = IdealGeometryRestraint(peptide.topology, peptide.positions)
    other = renamed(peptide, {"H": "HN", "HA": "HX", "HB2": "QB1", "HB3": "QB2"}, {})
    restraint = IdealGeometryRestraint(other.topology, other.positions)
    assert restraint.notes == []
    np.testing.assert_array_equal(restraint.terms.bonds.atoms, plain.terms.bonds.atoms)
    np.testing.assert_allclose(restraint.terms.bonds.values, plain.terms.bonds.values)
    np.testing.assert_array_equal(restraint.terms.angles.atoms, plain.terms.angles.atoms)
    other = renamed(peptide, {"SD": "S9"}, {"ALA": "XXX"})
    restraint = IdealGeometryRestraint(other.topology, other.positions)
    unknown, unnamed = restraint.notes
    assert unknown.startswith("No ideal geometry is known of these residues: A XXX")
    assert "A MET 1 S9" in unnamed
    assert 0 < restraint.n_terms < plain.n_terms


def test_a_centre_of_the_other_hand_keeps_it_and_is_named(peptide: Model) -> None:
    mirrored = IdealGeometryRestraint(peptide.topology, peptide.positions * [1, 1, -1])
    plain = IdealGeometryRestraint(peptide.topology, peptide.positions)
    np.testing.assert_allclose(mirrored.terms.volumes.values, -plain.terms.volumes.values)
    assert len(mirrored.notes) == 1 and "keep their handedness" in mirrored.notes[0]


def test_a_library_that_lacks_a_residue_and_names_an_atom_otherwise(
    dna: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, lists = gemmi.cif.read(str(TABLE)), gemmi.cif.Document()
    for block in table:
        if block.name.startswith(("comp_list", "link_", "mod_")):
            lists.add_copied_block(block)
    (tmp_path / "list").mkdir()
    lists.write_file(str(tmp_path / "list" / "mon_lib_list.cif"))
    (tmp_path / "ener_lib.cif").write_text("data_energy\n")
    (tmp_path / "d").mkdir()
    for name in ("DA", "DC", "DG"):
        component = gemmi.cif.Document()
        row = component.add_new_block("comp_list").init_loop("_chem_comp.", ["id", "group"])
        row.add_row([name, "DNA"])
        component.add_copied_block(table.find_block(f"comp_{name}"))
        text = component.as_string()
        (tmp_path / "d" / f"{name}.cif").write_text(text.replace("N2 ", "N9A ") if name == "DG" else text)
    plain = geometry_report(dna.topology, dna.positions)
    assert not any("RMSZ" in note for note in plain.notes)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    report = geometry_report(dna.topology, dna.positions)
    unnamed, borrowed = report.notes[len(plain.notes) :]
    assert unnamed.startswith("The monomer library does not have these atoms") and "A DG 2 N2" in unnamed
    assert borrowed == (
        "The monomer library lacks these residues, whose ideal values are those of the package's table: DT."
    )
    lost = {a.index for a in dna.topology.atoms() if (a.residue.name, a.name) == ("DG", "N2")}
    assert plain.bond_z_count - report.bond_z_count == sum(
        a.index in lost or b.index in lost for a, b in dna.topology.bonds()
    )
    restraint = IdealGeometryRestraint(dna.topology, dna.positions)
    assert restraint.notes[0] == borrowed
    assert restraint.notes[1].startswith("The monomer library does not have these atoms of their residues")


def test_a_dictionary_tells_of_its_residue(tmp_path: Path) -> None:
    path = tmp_path / "XYZ.cif"
    path.write_text(DICTIONARY)
    topology = app.Topology()
    residue = topology.addResidue("XYZ", topology.addChain("A"), "1")
    carbon, oxygen = (
        topology.addAtom(f"{e.symbol}1", e, residue) for e in (app.element.carbon, app.element.oxygen)
    )
    topology.addBond(carbon, oxygen)
    positions = np.array([[0.0, 0, 0], [1.31, 0, 0]])
    assert "A XYZ 1" in IdealGeometryRestraint(topology, positions).notes[0]
    restraint = IdealGeometryRestraint(topology, positions, dictionaries=path)
    (violation,) = restraint.violations(positions)
    assert str(violation) == "A XYZ 1: bond C1 - O1 is 1.31 Å, held at 1.21 Å"
    assert restraint.n_terms == 1 and restraint.notes == []


@pytest.mark.parametrize(
    ("name", "group", "ends", "link"),
    [
        ("HYP", "NON-POLYMER", (("ALA", "C"), ("HYP", "N")), "PTRANS"),
        ("XYP", "'D-saccharide, beta linking'", (("MAN", "O2"), ("XYP", "C1")), "BETA1-2"),
        ("SIA", "'D-saccharide, alpha linking'", (("GAL", "O3"), ("SIA", "C2")), "ALPHA2-3"),
    ],
)
def test_residues_of_dictionaries_have_the_links_of_their_kind(
    tmp_path: Path, name: str, group: str, ends: Any, link: str
) -> None:
    """AceDRG names the kind of its residues in other words than the library, or not at all."""
    document = gemmi.cif.Document()
    row = document.add_new_block("comp_list").init_loop("_chem_comp.", ["id", "group"])
    row.add_row([name, group])
    document.add_copied_block(gemmi.cif.read(str(TABLE)).find_block(f"comp_{name}"))
    document.write_file(str(tmp_path / "one.cif"))
    library = MonomerLibrary([name], dictionaries=tmp_path / "one.cif")
    assert link in {known.id for known, _ in library.links_of(*ends, is_cis=False)}


def test_errors(peptide: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(
        InputError, match=r"it is not a monomer library: it has no list/mon_lib_list.cif: give"
    ):
        IdealGeometryRestraint(peptide.topology, peptide.positions)
    monkeypatch.delenv(FOLDER_VARIABLE)
    with pytest.raises(InputError, match="there is no such file"):
        IdealGeometryRestraint(peptide.topology, peptide.positions, dictionaries=tmp_path / "no.cif")
    with pytest.raises(InputError, match=r"add those of create_forces\(\)"):
        IdealGeometryRestraint(peptide.topology, peptide.positions).create_force()
