"""Ends of chains: where they are built, and where a bond says that there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openmm
import pytest
from scipy.spatial.transform import Rotation

from openmm_density.models import Model, Prepared, prepare, read_model

from ..small_models import bonds_between_residues, fragment_lines, written

# Names of the atoms of the bond that an isopeptide, an ester or a thioester adds, with what the acid loses, and angles (degrees)
# at the nucleophile.
SIDE_CHAINS = [
    ("LYS", "CE", "NZ", "ASN", "CG", "ND2", 122.0, 1.33),
    ("LYS", "CE", "NZ", "ASP", "CG", "OD2", 122.0, 1.33),
    ("LYS", "CE", "NZ", "GLN", "CD", "NE2", 122.0, 1.33),
    ("CYS", "CB", "SG", "GLN", "CD", "NE2", 101.0, 1.76),
    ("THR", "CB", "OG1", "GLN", "CD", "NE2", 117.0, 1.35),
]


def atoms_of(prepared: Prepared, number: int) -> dict[str, np.ndarray]:
    """Return the places of the atoms of the residue of a number."""
    (residue,) = (each for each in prepared.topology.residues() if each.id == str(number))
    return {atom.name: prepared.positions[atom.index] for atom in residue.atoms()}


def angle(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    u, v = a - b, c - b
    return float(np.degrees(np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v))))


def check_carboxylate(atoms: dict[str, np.ndarray]) -> None:
    ca, c, o, oxt = (atoms[name] for name in ("CA", "C", "O", "OXT"))
    assert np.linalg.norm(oxt - c) == pytest.approx(1.25, abs=1e-6)
    # Equal angles to both neighbours, and with that between these a full turn: all in one plane.
    angles = [angle(ca, c, oxt), angle(o, c, oxt), angle(ca, c, o)]
    assert angles[0] == pytest.approx(angles[1], abs=0.1) and sum(angles) == pytest.approx(360.0, abs=0.1)


def test_a_terminal_oxygen_is_built_opposite_to_the_other(small_data: Path, tmp_path: Path) -> None:
    prepared = prepare(read_model(written(tmp_path / "m.pdb", fragment_lines(small_data, 1, 6))))
    check_carboxylate(atoms_of(prepared, 6))
    (names,) = (names for label, names in prepared.report.added_heavy_atoms.items() if label.endswith(" 6"))
    assert names == ["OXT"]


def test_a_terminal_oxygen_is_built_where_the_other_has_to_be_too(small_data: Path, tmp_path: Path) -> None:
    lines = [x for x in fragment_lines(small_data, 1, 6) if not (x[12:16] == " O  " and int(x[22:26]) == 6)]
    check_carboxylate(atoms_of(prepare(read_model(written(tmp_path / "m.pdb", lines))), 6))


@pytest.mark.parametrize("wrong", ["beyond", "beside"])
def test_a_terminal_oxygen_at_the_wrong_side_is_mended_and_named(
    small_data: Path, tmp_path: Path, wrong: str
) -> None:
    """As pdbfixer writes it; or near the carbon, but on the side of the other oxygen."""
    lines = fragment_lines(small_data, 1, 6)
    whole = read_model(written(tmp_path / "m.pdb", lines))
    places = {a.name: whole.positions[a.index] for a in whole.topology.atoms() if a.residue.id == "6"}
    axis = (places["C"] - places["CA"]) / np.linalg.norm(places["C"] - places["CA"])
    out = places["O"] - places["CA"]
    place = places["O"] + 2 * (out - axis * (out @ axis))
    if wrong == "beside":
        place = places["C"] + 1.25 * (place - places["C"]) / np.linalg.norm(place - places["C"])
    oxygen = next(x for x in lines if x[12:16] == " O  " and int(x[22:26]) == 6)
    lines.append(
        f"{oxygen[:12]} OXT{oxygen[16:30]}{place[0]:8.3f}{place[1]:8.3f}{place[2]:8.3f}{oxygen[54:]}"
    )
    prepared = prepare(read_model(written(tmp_path / "wrong.pdb", lines)))
    check_carboxylate(atoms_of(prepared, 6))
    assert any("rebuilt" in sentence and " 6." in sentence for sentence in prepared.report.sentences)
    assert prepared.report.added_heavy_atoms == {}
    # One that lies well stays to the digit.
    good = written(
        tmp_path / "good.pdb",
        [
            *lines[:-1],
            lines[-1][:30] + "".join(f"{x:8.3f}" for x in atoms_of(prepared, 6)["OXT"]) + lines[-1][54:],
        ],
    )
    again = prepare(read_model(good))
    np.testing.assert_array_equal(again.input_positions(again.positions), read_model(good).positions)
    assert not any("rebuilt" in sentence for sentence in again.report.sentences)


def test_a_chain_goes_on_through_a_chromophore(small_data: Path) -> None:
    prepared = prepare(read_model(small_data / "zoo" / "1ema_chromophore.cif"))
    assert "OXT" not in atoms_of(prepared, 64) and "OXT" in atoms_of(prepared, 69)
    after = atoms_of(prepared, 68)
    assert "H" in after and not {"H2", "H3"} & after.keys()
    # In the plane of its amide.
    (carbon,) = (place for name, place in atoms_of(prepared, 66).items() if name == "C3")
    angles = [angle(after["H"], after["N"], other) for other in (after["CA"], carbon)]
    assert angles[0] == pytest.approx(angles[1], abs=0.5) and 110 < angles[0] < 125
    assert prepared.report.adapted_residues == [] and prepared.report.chain_breaks == []
    assert prepared.report.rigid_residues == ["A CRO 66 (22 atoms)"]


def test_a_chain_goes_on_to_the_cap_of_its_end(small_data: Path) -> None:
    prepared = prepare(read_model(small_data / "zoo" / "1grm_gramicidin.pdb"))
    assert "OXT" not in atoms_of(prepared, 15)
    assert prepared.report.rigid_residues == ["A FOR 0 (4 atoms)", "A ETA 16 (4 atoms)"]
    assert any("A TRP 15 C" in link and "A ETA 16 N" in link for link in prepared.report.links)


@pytest.mark.parametrize("named", [False, True], ids=["by distance", "by LINK"])
def test_a_cyclic_peptide_is_one(small_data: Path, tmp_path: Path, named: bool) -> None:
    lines = (small_data / "zoo" / "5vav_cyclic.pdb").read_text().splitlines()
    if named:
        lines.insert(0, "LINK         N   GLY A   1                 C   ASP A  14     1555   1555  1.33")
    model = read_model(written(tmp_path / "cyclic.pdb", lines))
    assert frozenset(("1.N", "14.C")) in bonds_between_residues(model.topology)
    prepared = prepare(model)
    assert "OXT" not in atoms_of(prepared, 14) and not {"H2", "H3"} & atoms_of(prepared, 1).keys()
    assert prepared.report.rigid_residues == prepared.report.adapted_residues == []
    # The force field has its terms.
    ends = [a.index for a in prepared.topology.atoms() if (a.residue.id, a.name) in (("1", "N"), ("14", "C"))]
    assert frozenset(ends) in harmonic_bonds(prepared)


def harmonic_bonds(prepared: Prepared) -> set[frozenset[int]]:
    """Return the pairs of atoms that a System holds by springs."""
    system = prepared.system(constraints=None)
    return {
        frozenset(force.getBondParameters(k)[:2])
        for force in system.getForces()
        if isinstance(force, openmm.HarmonicBondForce)
        for k in range(force.getNumBonds())
    }


def pair_of_residues(small_data: Path, name: str) -> dict[tuple[int, str], str]:
    """Return the lines of a residue of a kind and of the next one of its chain, by residue and atom."""
    lines = [
        *fragment_lines(small_data, 1, 90),
        *(small_data / "emd6374_frag/6374_native.pdb").read_text().splitlines(),
    ]
    residues: dict[str, dict[str, str]] = {}
    for line in lines:
        if line.startswith("ATOM"):
            residues.setdefault(line[17:27], {})[line[12:16].strip()] = line
    found = list(residues.items())
    k = next(
        k for k, (label, atoms) in enumerate(found) if label[:3] == name and "O" in atoms and len(atoms) > 5
    )
    return {(n, atom): line for n in (0, 1) for atom, line in found[k + n][1].items()}


def with_side_chain_bond(
    small_data: Path, path: Path, case: tuple, length: float | None = None, complete: bool = False
) -> Model:
    """Write two pairs of residues of proteins, side chain at side chain."""
    donor, before, nucleophile, acid, carbon, lost, bend, ideal = case
    first, second = pair_of_residues(small_data, donor), pair_of_residues(small_data, acid)

    def place(line: str) -> np.ndarray:
        return np.array([float(line[k : k + 8]) for k in (30, 38, 46)])

    def arms(atoms: dict[tuple[int, str], str], name: str) -> np.ndarray:
        found = [
            place(line) - place(atoms[0, name])
            for (k, other), line in atoms.items()
            if k == 0 and other != name
        ]
        return sum(arm / np.linalg.norm(arm) for arm in found if np.linalg.norm(arm) < 1.9)

    # The acid's carbon is where it has to be, and what it lost, be it a hydrogen, points at the nucleophile.
    centre = place(first[0, nucleophile])
    arm = place(first[0, before]) - centre
    arm /= np.linalg.norm(arm)
    across = np.cross(arm, [0.3, 0.5, 0.8]) if donor != "HIS" else -arms(first, nucleophile)
    across -= arm * (across @ arm)
    across /= np.linalg.norm(across)
    target = np.cos(np.radians(bend)) * arm + np.sin(np.radians(bend)) * across
    own = place(second[0, carbon]) - place(second[0, lost]) if lost else arms(second, carbon)
    turn, _ = Rotation.align_vectors([target], [own / np.linalg.norm(own)])
    end = centre + (length or ideal) * target
    lines = list(first.values())
    for (number, name), line in second.items():
        if complete or (number, name) != (0, lost):
            x, y, z = turn.apply(place(line) - place(second[0, carbon])) + end
            lines.append(f"{line[:21]}B{line[22:30]}{x:8.3f}{y:8.3f}{z:8.3f}{line[54:]}")
    return read_model(written(path, lines))


@pytest.mark.parametrize("case", SIDE_CHAINS, ids=lambda case: f"{case[0]}-{case[3]}")
def test_side_chains_of_standard_residues_are_bonded_by_distance(
    small_data: Path, tmp_path: Path, case: tuple
) -> None:
    model = with_side_chain_bond(small_data, tmp_path / "bond.pdb", case)
    (bond,) = [
        (a, b)
        for a, b in model.topology.bonds()
        if a.residue.chain is not b.residue.chain and model.short_contacts == ()
    ]
    assert {atom.name for atom in bond} == {case[2], case[4]}
    prepared = prepare(model)
    first, second = (next(iter(chain.residues())) for chain in prepared.topology.chains())
    # What the acid lost is not built again, and neither it nor the other is held rigid for that.
    assert case[5] not in {atom.name for atom in second.atoms()}
    assert all(names == ["OXT"] for names in prepared.report.added_heavy_atoms.values())
    assert prepared.report.rigid_residues == []
    near = {"NZ": {"HZ1", "HZ2", "HZ3"}, "SG": {"HG"}, "OG1": {"HG1"}}[case[2]]
    assert len(near & {atom.name for atom in first.atoms()}) == (1 if case[2] == "NZ" else 0)
    assert frozenset(prepared.prepared_index[[a.index for a in bond]].tolist()) in harmonic_bonds(prepared)
    if case[2] == "NZ":  # with the terms and charges of a peptide
        assert prepared.report.links == []
        charges = charges_of(prepared)
        amine = {atom.name: charges[atom.index] for atom in first.atoms() if atom.name in {"NZ"} | near}
        assert sorted(amine.values()) == pytest.approx([-0.4157, 0.2719])


def charges_of(prepared: Prepared) -> list[float]:
    """Return the charges of a System's particles."""
    system = prepared.system()
    (force,) = (f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    return [force.getParticleParameters(k)[0]._value for k in range(force.getNumParticles())]


@pytest.mark.parametrize(
    "case",
    [
        ("CYS", "CB", "SG", "TYR", "CE1", None, 101.0, 1.77),
        ("MET", "CE", "SD", "TYR", "CE2", None, 103.0, 1.79),
        ("HIS", "CE1", "NE2", "TYR", "CE2", None, 126.0, 1.40),
        ("CYS", "CB", "SG", "HIS", "CE1", None, 101.0, 1.74),
    ],
    ids=lambda case: f"{case[0]}-{case[3]}",
)
def test_aromatic_side_chains_are_bonded_by_distance(small_data: Path, tmp_path: Path, case: tuple) -> None:
    model = with_side_chain_bond(small_data, tmp_path / "bond.pdb", case)
    (bond,) = [(a, b) for a, b in model.topology.bonds() if a.residue.chain is not b.residue.chain]
    assert {atom.name for atom in bond} == {case[2], case[4]}
    prepared = prepare(model)
    second = next(iter(list(prepared.topology.chains())[1].residues()))
    assert f"H{case[4][1:]}" not in {atom.name for atom in second.atoms()}
    assert prepared.report.rigid_residues == []
    # As far from the ring as a contact, there is none.
    far = with_side_chain_bond(small_data, tmp_path / "far.pdb", case, length=case[7] + 0.25)
    assert all(a.residue.chain is b.residue.chain for a, b in far.topology.bonds())


def test_what_is_near_without_the_chemistry_of_a_bond_stays_apart(small_data: Path, tmp_path: Path) -> None:
    """The same contact too far, and with an acid that has lost nothing."""
    far = with_side_chain_bond(small_data, tmp_path / "far.pdb", SIDE_CHAINS[0], length=1.9)
    whole = with_side_chain_bond(small_data, tmp_path / "whole.pdb", SIDE_CHAINS[0], complete=True)
    for model in (far, whole):
        assert all(a.residue.chain is b.residue.chain for a, b in model.topology.bonds())
