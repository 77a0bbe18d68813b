"""Shapes that the monomer library gives residues that a force field does not know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density.models import Model, prepare, read_model
from openmm_density.models.chemistry.monomers.library import FOLDER_VARIABLE
from openmm_density.models.chemistry.monomers.terms import find_terms
from openmm_density.models.chemistry.pyranoses import find_pyranoses
from openmm_density.models.preparation.ideal_shapes import ideal_shapes


@pytest.fixture(autouse=True)
def package_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def of_residues(path: Path, folder: Path, *ends: str) -> Model:
    """Return the residues of a file whose atoms' lines hold one of these texts."""
    chosen = [
        line
        for line in path.read_text().splitlines(keepends=True)
        if line.startswith(("ATOM", "HETATM")) and any(end in line for end in ends)
    ]
    (folder / "part.pdb").write_text("".join(chosen))
    return read_model(folder / "part.pdb")


def rigid_of(model: Model, *names: str) -> list[np.ndarray]:
    return [
        np.array([atom.index for atom in residue.atoms()])
        for residue in model.topology.residues()
        if residue.name in names
    ]


def rmsz(topology: app.Topology, positions: np.ndarray, atoms: np.ndarray) -> list[float]:
    """Return the root mean square of how many σ bonds and angles of some atoms are off."""
    terms = find_terms(topology, positions)
    return [
        float(np.sqrt(np.mean(kind.z(positions)[np.isin(kind.atoms, atoms).all(axis=1)] ** 2)))
        for kind in (terms.bonds, terms.angles)
    ]


def test_sugars_become_ideal_in_their_chair_and_links_have_ideal_lengths(
    small_data: Path, tmp_path: Path
) -> None:
    glycan = "NAG A 402", "NAG A 403", "MAN A 405"
    model = of_residues(small_data / "xraymap_3pqr_R32/3pqr.pdb", tmp_path, *glycan, "ASN A  15")
    rigid = rigid_of(model, "NAG", "MAN")
    shapes = ideal_shapes(model.topology, model.positions, rigid)
    placed = model.positions.copy()
    placed[list(shapes.places)] = list(shapes.places.values())
    assert set(shapes.places) == set(np.concatenate(rigid)) and not shapes.n_mended and not shapes.sentences
    before, after = (
        np.array([rmsz(model.topology, positions, each) for each in rigid])
        for positions in (model.positions, placed)
    )
    assert (after < 0.3).all() and (before > after).all()
    sugars = find_pyranoses(model.topology)
    assert sugars.conformations(placed) == ["4C1"] * 3
    assert (sugars.anomers(placed) == sugars.anomers(model.positions)).all()
    names = {atom.index: atom.name for atom in model.topology.atoms()}
    links = {(names[i], names[j]): length for (i, j), length in shapes.link_lengths.items()}
    # N-glycosidic and β1-4 bonds, by the library.
    assert links["ND2", "C1"] == pytest.approx(1.43, abs=0.02)
    assert links["O4", "C1"] == pytest.approx(1.39, abs=0.02)


def test_a_bad_haem_is_said_and_mended_in_a_system(small_data: Path, tmp_path: Path) -> None:
    model = of_residues(small_data / "emd3488_5ni1/5me2.pdb", tmp_path, "HEM A")
    place = {atom.name: atom.index for atom in model.topology.atoms()}
    bent = model.positions.copy()
    bent[place["CBB"]] += [0.6, 0.5, 0.0]
    bad = replace(model, positions=bent)
    prepared = prepare(bad)
    (label,) = prepared.shapes.n_mended
    assert label == "A HEM 201" and place["CBB"] in prepared.mended_ends
    assert any(
        sentence.startswith("Bonds over 0.2 Å or angles over 15°") and label in sentence
        for sentence in prepared.report.sentences
    )
    atoms = np.arange(len(bent))
    shape = np.array([prepared.shapes.places[k] for k in atoms])
    assert max(rmsz(model.topology, shape, atoms)) < 0.7 < max(rmsz(model.topology, bent, atoms)) / 4
    # The rest stays where it is.
    others = np.delete(atoms, [place["CBB"], place["CAB"]])
    assert np.linalg.norm(shape - model.positions, axis=1)[others].max() < 0.3


def test_what_the_library_does_not_know_or_contradicts_keeps_its_shape_with_a_sentence(
    small_data: Path, tmp_path: Path
) -> None:
    model = of_residues(small_data / "xraymap_3pqr_R32/3pqr.pdb", tmp_path, "NAG A 402", "BOG A 601")
    for residue in model.topology.residues():
        residue.name = {"NAG": "FUC"}.get(residue.name, residue.name)
    shapes = ideal_shapes(model.topology, model.positions, rigid_of(model, "FUC", "BOG"))
    assert shapes.places == {} and shapes.link_lengths == {}
    other, unknown = shapes.sentences
    assert other.startswith("These residues have other bonds or atoms") and other.endswith(": A FUC 402.")
    assert unknown.startswith("No monomer library or dictionary") and unknown.endswith(": A BOG 601.")
    assert ideal_shapes(model.topology, model.positions, []).sentences == []


def test_a_dictionary_of_other_atom_names_is_left_out(small_data: Path, tmp_path: Path) -> None:
    """As of a program that numbers the atoms of a ligand anew."""
    model = of_residues(small_data / "xraymap_3pqr_R32/3pqr.pdb", tmp_path, "BOG A 601")
    head = "data_comp_list\nloop_\n_chem_comp.id\n_chem_comp.group\nBOG NON-POLYMER\ndata_comp_BOG\nloop_\n"
    atoms = "".join(
        f"_chem_comp_atom.{tag}\n" for tag in ("comp_id", "atom_id", "type_symbol", "type_energy")
    )
    bond = ("comp_id", "atom_id_1", "atom_id_2", "type", "value_dist", "value_dist_esd")
    bonds = "loop_\n" + "".join(f"_chem_comp_bond.{tag}\n" for tag in bond)
    text = f"{head}{atoms}BOG X1 C .\nBOG X2 C .\n{bonds}BOG X1 X2 single 1.5 0.02\n"
    (tmp_path / "BOG.cif").write_text(text)
    shapes = ideal_shapes(model.topology, model.positions, rigid_of(model, "BOG"), [tmp_path / "BOG.cif"])
    assert shapes.places == {} and "A BOG 601" in shapes.sentences[0]


def test_a_dictionary_that_contradicts_bonds_is_left_out(small_data: Path, tmp_path: Path) -> None:
    model = of_residues(small_data / "xraymap_3pqr_R32/3pqr.pdb", tmp_path, "BOG A 601")
    text = component_file(model, "BOG", {})
    lines = text.splitlines(keepends=True)
    rows = [k for k, line in enumerate(lines) if line.endswith(" SING\n")]
    for wrong in (lines[: rows[3]] + lines[rows[3] + 1 :], [*lines, "BOG C1 C6 SING\n"]):
        (tmp_path / "BOG.cif").write_text("".join(wrong))
        prepared = prepare(model, dictionaries=tmp_path / "BOG.cif")
        assert prepared.shapes.places == {} and prepared.topology.getNumBonds() == len(rows)
        assert [s for s in prepared.report.sentences if s.startswith("These residues have other bonds")]


def component_file(model: Model, name: str, stereo: dict[str, str]) -> str:
    """Return a component file of the wwPDB, with the model's positions as ideal coordinates."""
    (atoms,) = ([*each.atoms()] for each in model.topology.residues() if each.name == name)
    bonds = [(a, b) for a, b in model.topology.bonds() if a in atoms and b in atoms]
    ideal = [f"pdbx_model_Cartn_{axis}_ideal" for axis in "xyz"]
    lines = [f"data_{name}", f"_chem_comp.id {name}", "_chem_comp.type D-saccharide", "loop_"]
    tags = "comp_id", "atom_id", "type_symbol", "pdbx_stereo_config", *ideal
    lines += [f"_chem_comp_atom.{tag}" for tag in tags]
    for atom in atoms:
        place = " ".join(f"{x:.3f}" for x in model.positions[atom.index])
        lines.append(f"{name} {atom.name} {atom.element.symbol} {stereo.get(atom.name, 'N')} {place}")
    lines += ["loop_"] + [
        f"_chem_comp_bond.{tag}" for tag in ("comp_id", "atom_id_1", "atom_id_2", "value_order")
    ]
    lines += [f"{name} {a.name} {b.name} SING" for a, b in bonds]
    return "\n".join(lines) + "\n"


def test_a_component_file_of_the_wwpdb_tells_by_its_ideal_coordinates(
    small_data: Path, tmp_path: Path
) -> None:
    model = of_residues(small_data / "xraymap_3pqr_R32/3pqr.pdb", tmp_path, "BOG A 601")
    centres = dict.fromkeys(("C1", "C2", "C3", "C4", "C5"), "R")
    (tmp_path / "BOG.cif").write_text(component_file(model, "BOG", centres))
    bad = model.positions + np.random.default_rng(1).normal(scale=0.1, size=model.positions.shape)
    rigid = rigid_of(model, "BOG")
    shapes = ideal_shapes(model.topology, bad, rigid, tmp_path / "BOG.cif")
    terms = find_terms(model.topology, bad, dictionaries=tmp_path / "BOG.cif")
    assert set(shapes.places) == set(rigid[0]) and shapes.sentences == [] and len(terms.volumes.atoms) == 5
    placed = np.array([shapes.places[k] for k in rigid[0]])
    for kind in (terms.bonds, terms.angles, terms.volumes):
        assert np.sqrt(np.mean(kind.z(placed) ** 2)) < 0.5 < np.sqrt(np.mean(kind.z(bad) ** 2))
        np.testing.assert_allclose(kind.measured(model.positions), kind.values, atol=0.05)
    # Without ideal coordinates nothing is known.
    text = (tmp_path / "BOG.cif").read_text().replace("_ideal", "")
    (tmp_path / "BOG.cif").write_text(text)
    assert ideal_shapes(model.topology, bad, rigid, tmp_path / "BOG.cif").places == {}


def test_a_d_amino_acid_is_the_mirror_image_of_what_the_table_has(small_data: Path, tmp_path: Path) -> None:
    model = of_residues(small_data / "emd5925_frag/5925_native.pdb", tmp_path, "THR A   8")
    for residue in model.topology.residues():
        residue.name = "DTH"
    (rigid,) = rigid_of(model, "DTH")
    mirrored = model.positions * [1, 1, -1]
    assert set(ideal_shapes(model.topology, mirrored, [rigid]).places) == set(rigid)
    assert find_terms(model.topology, mirrored).other_hands == ()
    assert find_terms(model.topology, model.positions).other_hands == ("A DTH 8 CA", "A DTH 8 CB")


def test_a_distorted_residue_has_the_bonds_of_the_library(small_data: Path, tmp_path: Path) -> None:
    model = of_residues(small_data / "xraymap_3pqr_R32/3pqr.pdb", tmp_path, "NAG A 402")

    def bonds(path: Path) -> set[frozenset[str]]:
        return {frozenset((a.name, b.name)) for a, b in read_model(path).topology.bonds()}

    path = tmp_path / "part.pdb"
    lines, true = path.read_text().splitlines(keepends=True), bonds(path)
    places = {atom.name: model.positions[atom.index] for atom in model.topology.atoms()}
    arm = places["O6"] - places["C4"]
    place = places["C4"] + 1.7 * arm / np.linalg.norm(arm)  # as near as a bond, which closes a ring of four
    moved = "".join(f"{x:8.3f}" for x in place)
    path.write_text("".join(x[:30] + moved + x[54:] if x[12:16].strip() == "O6" else x for x in lines))
    assert bonds(path) == true
    # What only a dictionary knows has its bonds once it is given.
    (tmp_path / "LIG.cif").write_text(component_file(model, "NAG", {}).replace("NAG", "LIG"))
    path.write_text(path.read_text().replace("NAG", "LIG"))
    assert bonds(path) != true
    prepared = prepare(read_model(path), dictionaries=tmp_path / "LIG.cif")
    assert {frozenset((a.name, b.name)) for a, b in prepared.topology.bonds()} == true
    assert len(prepared.shapes.places) == len(prepared.positions)
