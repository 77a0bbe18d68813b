from __future__ import annotations

import gzip
import os
from pathlib import Path

import gemmi
import mdtraj
import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.errors import InputError
from openmm_density.structures import (
    Model,
    Prepared,
    is_hydrogen,
    pdb_limit,
    prepare,
    read_model,
    write_cif,
    write_pdb,
)

MODELS = (
    "pair_adk/adk_open.pdb",
    "pair_adk/1ake_s.pdb",
    "pair_adk/4ake_t.pdb",
    "emd3488_5ni1/5me2.pdb",
    "emd3488_5ni1/5ni1_updated.cif",
    "emd3488_5ni1/modelangelo_5ni1.cif",
    "emd6187_kinesin/1bg2_K_fitted.pdb",
    "emd6187_kinesin/chain_K_box_complete.pdb",
    "emd5925_frag/5925_native.pdb",
    "emd5925_frag/5925_original_1.pdb",
    "emd6374_frag/6374_native.pdb",
    "emd21457_ntd/6vyb_Ndom.pdb",
    "qr_6i5a/6i5a_box_complete.pdb",
    "xraymap_3pqr_R32/3pqr.pdb",
    "xray_1g8a_P21/1G8A_refined.pdb",
    "xraymap_P41212_bigendian/ref.pdb",
)
WRITTEN = (
    "name",
    "residue_name",
    "chain",
    "residue_number",
    "insertion_code",
    "segment",
    "hetero",
    "element",
    "charge",
)
FRAGMENT = "emd5925_frag/5925_native.pdb"


def fragment_lines(data_dir: Path, first: int = 1, last: int = 12) -> list[str]:
    lines = (data_dir / FRAGMENT).read_text().splitlines()
    return [line for line in lines if line.startswith("ATOM") and first <= int(line[22:26]) <= last]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join([*lines, "END", ""]))
    return path


def hetatm(serial: int, name: str, residue: str, number: int, place: np.ndarray, element: str) -> str:
    x, y, z = place
    return (
        f"HETATM{serial:5d} {name:<4s} {residue:>3s} A{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        f"  1.00 20.00          {element:>2s}"
    )


def bonds_between_residues(topology: app.Topology) -> set[frozenset[str]]:
    return {
        frozenset((f"{a.residue.id}.{a.name}", f"{b.residue.id}.{b.name}"))
        for a, b in topology.bonds()
        if a.residue is not b.residue
    }


def context_of(prepared: Prepared, **options: object) -> openmm.Context:
    integrator = openmm.LangevinMiddleIntegrator(300, 5, 0.002)
    integrator.setRandomNumberSeed(1)
    context = openmm.Context(
        prepared.system(**options),
        integrator,
        openmm.Platform.getPlatformByName("CPU"),
        {"Threads": "2"},
    )
    context.setPositions(prepared.positions / 10)
    return context


def minimised(prepared: Prepared, iterations: int = 25) -> tuple[openmm.Context, float]:
    context = context_of(prepared, constraints=None, rigidWater=False)
    openmm.LocalEnergyMinimizer.minimize(context, 10, iterations)
    energy = context.getState(energy=True).getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
    return context, energy


def positions_of(context: openmm.Context) -> np.ndarray:
    return context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.angstrom)


@pytest.mark.parametrize("name", MODELS)
def test_atoms_are_those_of_gemmi_in_the_order_of_the_file(data_dir: Path, name: str) -> None:
    model = read_model(data_dir / name)
    oracle = gemmi.read_structure(str(data_dir / name), merge_chain_parts=False)
    oracle.remove_alternative_conformations()
    places = np.array([cra.atom.pos.tolist() for cra in oracle[0].all()])
    b_factors = np.array([cra.atom.b_iso for cra in oracle[0].all()])
    assert len(model.records) == model.topology.getNumAtoms() == len(places)
    # 3pqr has alternate locations of equal and of different occupancy; gemmi keeps the first of each.
    same = np.all(model.positions == places, axis=1)
    assert same.mean() > 0.99
    np.testing.assert_array_equal(model.b_factors[same], b_factors[same])
    assert all(atom.element is not None for atom in model.topology.atoms())


def test_charmm_names_and_missing_elements_become_standard(data_dir: Path) -> None:
    charmm = read_model(data_dir / "pair_adk/adk_open.pdb")
    amber = read_model(data_dir / "pair_adk/1ake_s.pdb")

    def table(model: Model) -> list[tuple[str, str, list[str]]]:
        return [
            (residue.id, residue.name, sorted(a.name for a in residue.atoms() if not is_hydrogen(a)))
            for residue in model.topology.residues()
        ]

    assert table(charmm) == table(amber)
    assert {record.residue_name for record in charmm.records} >= {"HSD"}
    assert charmm.records[1].name == "HT1"
    assert charmm.records[0].segment == "4AKE"
    assert sorted(a.element.symbol for a in charmm.topology.atoms()) == sorted(
        a.element.symbol for a in amber.topology.atoms()
    )
    assert charmm.topology.getNumBonds() == amber.topology.getNumBonds()


def test_dummy_cell_is_no_cell(data_dir: Path) -> None:
    assert read_model(data_dir / "emd5925_frag/5925_original_1.pdb").cell is None
    cell = read_model(data_dir / "xray_1g8a_P21/1G8A_refined.pdb").cell
    assert cell == pytest.approx((46.376, 41.098, 54.168, 90, 98.26, 90))


def test_no_peptide_bond_across_a_gap(data_dir: Path) -> None:
    model = read_model(data_dir / "emd21457_ntd/6vyb_Ndom.pdb")
    numbers = {
        tuple(sorted((int(a.residue.id), int(b.residue.id))))
        for a, b in model.topology.bonds()
        if {a.name, b.name} == {"C", "N"} and a.residue is not b.residue
    }
    assert all(second == first + 1 for first, second in numbers)
    peptides = sum(residue.name != "NAG" for residue in model.topology.residues())
    assert len(numbers) == peptides - 6


def test_gap_hidden_by_renumbering_is_found(data_dir: Path, tmp_path: Path) -> None:
    kept = [line for line in fragment_lines(data_dir, 1, 20) if not 8 <= int(line[22:26]) <= 11]
    renumbered = [
        f"{line[:22]}{int(line[22:26]) - (4 if int(line[22:26]) > 11 else 0):4d}{line[26:]}" for line in kept
    ]
    model = read_model(written(tmp_path / "gap.pdb", renumbered))
    assert [len(chain) for chain in model.topology.chains()] == [7, 9]
    assert frozenset(("7.C", "8.N")) not in bonds_between_residues(model.topology)


def test_bonds_of_links_disulphides_and_metals(data_dir: Path) -> None:
    spike = bonds_between_residues(read_model(data_dir / "emd21457_ntd/6vyb_Ndom.pdb").topology)
    assert {frozenset(("61.ND2", "1301.C1")), frozenset(("131.SG", "166.SG"))} <= spike
    haem = read_model(data_dir / "emd3488_5ni1/5ni1_updated.cif").topology
    iron = [bond for bond in bonds_between_residues(haem) if "201.FE" in bond]
    assert sorted(iron, key=sorted) == [frozenset(("201.FE", "87.NE2")), frozenset(("201.FE", "92.NE2"))]
    inside = [b for b in haem.bonds() if b[0].residue is b[1].residue and "FE" in (b[0].name, b[1].name)]
    assert len(inside) == 4 * 4
    opsin = bonds_between_residues(read_model(data_dir / "xraymap_3pqr_R32/3pqr.pdb").topology)
    assert {frozenset(("296.NZ", "401.C15")), frozenset(("403.O4", "404.C1"))} <= opsin


def test_best_conformer_is_kept_whole(data_dir: Path, tmp_path: Path) -> None:
    lines = []
    for line in fragment_lines(data_dir, 1, 3):
        if int(line[22:26]) == 2 and line[12:16].strip() == "CB":
            for altloc, occupancy, x in (("A", 0.30, 1.0), ("B", 0.70, 2.0)):
                lines.append(
                    f"{line[:16]}{altloc}{line[17:30]}{x:8.3f}{line[38:54]}{occupancy:6.2f}{line[60:]}"
                )
        else:
            lines.append(line)
    model = read_model(written(tmp_path / "alt.pdb", lines))
    index = next(k for k, record in enumerate(model.records) if record.altloc)
    assert (model.records[index].altloc, model.positions[index, 0]) == ("B", 2.0)
    assert model.notes == ["1 atoms of alternate locations with lower occupancy were left out."]


def test_insertion_codes_first_model_and_hexadecimal_serials(data_dir: Path, tmp_path: Path) -> None:
    lines = [
        f"{line[:22]}  10{'ABC'[int(line[22:26]) - 1]}{line[27:]}".replace("ATOM      1", "ATOM  186a0")
        for line in fragment_lines(data_dir, 1, 3)
    ]
    path = written(
        tmp_path / "m.pdb", ["MODEL        1", *lines, "ENDMDL", "MODEL        2", *lines, "ENDMDL"]
    )
    model = read_model(path)
    residues = list(model.topology.residues())
    assert [(residue.id, residue.insertionCode) for residue in residues] == [("10", c) for c in "ABC"]
    assert len(list(model.topology.chains())) == 1
    assert len(model.records) == len(lines)
    assert "2 models" in model.notes[0]


def test_gzip_and_mmcif_give_the_same_model(data_dir: Path, tmp_path: Path) -> None:
    plain = read_model(data_dir / FRAGMENT)
    packed = tmp_path / "model.pdb.gz"
    packed.write_bytes(gzip.compress((data_dir / FRAGMENT).read_bytes()))
    gemmi.read_structure(str(data_dir / FRAGMENT)).make_mmcif_document().write_file(
        str(tmp_path / "model.cif")
    )
    for path in (packed, tmp_path / "model.cif"):
        other = read_model(path)
        np.testing.assert_allclose(other.positions, plain.positions, atol=1e-9)
        assert bonds_between_residues(other.topology) == bonds_between_residues(plain.topology)
        assert [r.name for r in other.records] == [r.name for r in plain.records]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.pdb", None, "no such file"),
        ("empty.pdb", "", "no atoms"),
        ("model.xyz", "3", "ending"),
        ("bad.cif", "this is not a cif", "mmCIF"),
        ("none.cif", "data_x\n_cell.length_a 3\n", "_atom_site"),
        (
            "nan.pdb",
            "ATOM      1  CA  GLY A   1         nan   1.000   2.000  1.00  0.00           C\n",
            "line 1",
        ),
        (
            "star.pdb",
            "ATOM      1  CA  GLY A   1    ********   1.000   2.000  1.00  0.00           C\n",
            "line 1",
        ),
        ("broken.pdb.gz", b"\x1f\x8b\x08broken", "gzip"),
    ],
)
def test_reading_errors_are_one_sentence(tmp_path: Path, name: str, content: str | bytes, says: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_model(path)
    assert name in str(caught.value) and says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nan_in_mmcif_is_an_error(data_dir: Path, tmp_path: Path) -> None:
    text = (data_dir / "emd3488_5ni1/modelangelo_5ni1.cif").read_text().replace(" 73.434 ", " nan ", 1)
    (tmp_path / "nan.cif").write_text(text)
    with pytest.raises(InputError, match="not a number"):
        read_model(tmp_path / "nan.cif")


@pytest.mark.parametrize(
    "name",
    [
        "pair_adk/adk_open.pdb",
        FRAGMENT,
        "emd21457_ntd/6vyb_Ndom.pdb",
        "xraymap_3pqr_R32/3pqr.pdb",
        "xraymap_P41212_bigendian/ref.pdb",
    ],
)
def test_prepared_keeps_every_input_atom_and_minimises(data_dir: Path, name: str) -> None:
    model = read_model(data_dir / name)
    prepared = prepare(model)
    assert (prepared.prepared_index >= 0).all()
    back = prepared.input_index[prepared.prepared_index]
    np.testing.assert_array_equal(back, np.arange(len(model.records)))
    np.testing.assert_array_equal(prepared.input_positions(prepared.positions), model.positions)
    prepared_atoms = list(prepared.topology.atoms())
    for atom in model.topology.atoms():
        twin = prepared_atoms[prepared.prepared_index[atom.index]]
        assert twin.element == atom.element
        assert twin.residue.id == atom.residue.id and twin.residue.name == atom.residue.name
    _, energy = minimised(prepared)
    assert np.isfinite(energy) and energy < 1e6


def test_report_names_what_was_done(data_dir: Path) -> None:
    prepared = prepare(read_model(data_dir / "emd21457_ntd/6vyb_Ndom.pdb"))
    report = prepared.report
    assert report.rigid_residues == [f"NAG A {n} (14 atoms)" for n in (1301, 1302, 1305)]
    assert report.adapted_residues == ["ASN A 61", "ASN A 122", "ASN A 282"]
    assert report.added_heavy_atoms["CYS A 136"] == ["SG"]
    assert report.chain_breaks[0] == "HIS A 69 | PRO A 82"
    assert len(report.links) == 3
    assert any("NAG A 1301 (14 atoms)" in sentence for sentence in report.sentences)
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in report.sentences)
    assert report.as_dict()["added_hydrogens"] == report.added_hydrogens > 1500
    glycosylated = next(residue for residue in prepared.topology.residues() if residue.id == "61")
    assert len([a for a in glycosylated.atoms() if a.name in ("HD21", "HD22")]) == 1
    force = next(f for f in prepared.system().getForces() if isinstance(f, openmm.NonbondedForce))
    charge = sum(
        force.getParticleParameters(atom.index)[0].value_in_unit(unit.elementary_charge)
        for atom in glycosylated.atoms()
    )
    assert charge == pytest.approx(0.0, abs=1e-4)


def haem_chain(data_dir: Path, tmp_path: Path) -> Model:
    text = (data_dir / "emd3488_5ni1/5me2.pdb").read_text().splitlines()
    lines = [line for line in text if line.startswith(("ATOM", "HETATM")) and line[21] == "A"]
    return read_model(
        written(tmp_path / "haem.pdb", [text[0], *(x for x in text if x.startswith("LINK")), *lines])
    )


def test_haem_stays_rigid_and_on_its_histidine(data_dir: Path, tmp_path: Path) -> None:
    model = haem_chain(data_dir, tmp_path)
    prepared = prepare(model)
    assert prepared.report.rigid_residues == ["HEM A 201 (43 atoms)"]
    assert len(prepared.links) == 1
    haem = prepared.rigid[0]
    ring = next(residue for residue in prepared.topology.residues() if residue.id == "87")
    assert {"HD1", "HE2"} & {atom.name for atom in ring.atoms()} == {"HD1"}
    system = prepared.system()
    force = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    for index in haem:
        charge, sigma, epsilon = force.getParticleParameters(int(index))
        assert charge == 0 * unit.elementary_charge
        assert 0.2 < sigma.value_in_unit(unit.nanometer) < 0.45 and epsilon._value > 0
        assert system.getParticleMass(int(index)) > 10 * unit.dalton
    assert not any(isinstance(f, openmm.CMMotionRemover) for f in system.getForces())

    context, _ = minimised(prepared, 100)
    start = positions_of(context)
    context.setVelocitiesToTemperature(300, 1)
    context.getIntegrator().setStepSize(0.001)
    context.getIntegrator().step(300)
    end = positions_of(context)
    assert np.isfinite(end).all() and np.abs(end - start).max() > 0.1

    def distances(places: np.ndarray) -> np.ndarray:
        return np.linalg.norm(places[haem][:, None] - places[haem], axis=-1)

    change = distances(end) - distances(prepared.positions)
    assert np.sqrt((change**2).mean()) < 0.08
    i, j = prepared.links[0]
    assert np.linalg.norm(end[i] - end[j]) == pytest.approx(2.66, abs=0.3)


@pytest.mark.parametrize(
    "files",
    [
        ("charmm36.xml", "charmm36/water.xml"),
        ("amber14-all.xml", "amber14/tip3pfb.xml", "implicit/gbn2.xml"),
    ],
)
def test_other_force_fields_take_ligands_too(data_dir: Path, tmp_path: Path, files: tuple[str, ...]) -> None:
    lines = fragment_lines(data_dir)
    corner = read_model(data_dir / FRAGMENT).positions.max(axis=0)
    sulphur = corner + 6
    lines.append(hetatm(900, "S", "SO4", 300, sulphur, "S"))
    for k, corner_of in enumerate(([1, 1, 1], [-1, -1, 1], [-1, 1, -1], [1, -1, -1]), start=1):
        place = sulphur + 0.86 * np.array(corner_of)
        lines.append(hetatm(900 + k, f"O{k}", "SO4", 300, place, "O"))
    prepared = prepare(read_model(written(tmp_path / "so4.pdb", lines)), files)
    assert prepared.report.rigid_residues == ["SO4 A 300 (5 atoms)"]
    context, energy = minimised(prepared)
    assert np.isfinite(energy) and energy < 1e5
    end, start = positions_of(context)[prepared.rigid[0]], prepared.positions[prepared.rigid[0]]
    shape = [np.linalg.norm(places[:, None] - places, axis=-1) for places in (start, end)]
    np.testing.assert_allclose(*shape, atol=0.05)


def test_rigid_springs_are_at_rest_in_the_input(data_dir: Path, tmp_path: Path) -> None:
    prepared = prepare(haem_chain(data_dir, tmp_path))
    context = context_of(prepared, rigid_force_group=7)
    assert context.getState(energy=True, groups={7}).getPotentialEnergy()._value == pytest.approx(0, abs=1e-3)
    moved = prepared.positions.copy()
    moved[prepared.rigid[0]] += 1.0
    context.setPositions(moved / 10)
    assert context.getState(energy=True, groups={7}).getPotentialEnergy()._value > 100


def test_residue_in_the_chain_that_nobody_knows_keeps_its_peptide_bonds(
    data_dir: Path, tmp_path: Path
) -> None:
    lines = [
        f"{line[:17]}XYZ{line[20:]}" if line[17:20] == "TYR" and int(line[22:26]) == 9 else line
        for line in fragment_lines(data_dir, 1, 14)
    ]
    model = read_model(written(tmp_path / "xyz.pdb", lines))
    assert len(list(model.topology.chains())) == 1
    prepared = prepare(model)
    assert prepared.report.rigid_residues == ["XYZ A 9 (12 atoms)"]
    assert len(prepared.links) == 2
    context, _ = minimised(prepared, 100)
    end = positions_of(context)
    for i, j in prepared.links:
        assert np.linalg.norm(end[i] - end[j]) == pytest.approx(1.33, abs=0.1)


def test_selenomethionine_is_simulated_as_methionine_and_written_as_itself(
    data_dir: Path, tmp_path: Path
) -> None:
    lines = [
        line.replace("MET", "MSE").replace(" SD ", "SE  ").replace("           S", "          SE")
        if line[17:20] == "MET"
        else line
        for line in fragment_lines(data_dir)
    ]
    model = read_model(written(tmp_path / "mse.pdb", lines))
    prepared = prepare(model)
    assert prepared.report.substitutions == ["MSE A 1 as MET"]
    assert prepared.report.rigid_residues == []
    assert (prepared.prepared_index >= 0).all()
    write_pdb(tmp_path / "out.pdb", model, prepared.input_positions(prepared.positions))
    again = read_model(tmp_path / "out.pdb")
    selenium = [record for record in again.records if record.element == "Se"]
    assert [(record.name, record.residue_name) for record in selenium] == [("SE", "MSE")]


def test_hydrogen_without_counterpart_rides_on_its_residue(data_dir: Path, tmp_path: Path) -> None:
    lines = fragment_lines(data_dir)
    oxygen = next(line for line in lines if line[17:20] == "GLU" and line[12:16].strip() == "OE1")
    x = float(oxygen[30:38])
    proton = f"{oxygen[:12]} HE1{oxygen[16:30]}{x + 0.97:8.3f}{oxygen[38:76]} H"
    lines.insert(lines.index(oxygen) + 1, proton)
    model = read_model(written(tmp_path / "proton.pdb", lines))
    prepared = prepare(model)
    assert prepared.report.dropped_hydrogens == ["A 5 GLU HE1"]
    lost = int(np.flatnonzero(prepared.prepared_index < 0)[0])
    assert model.records[lost].name == "HE1"
    shift = np.array([1.0, 2.0, 3.0])
    shifted = prepared.input_positions((prepared.positions + shift) * unit.angstrom)
    np.testing.assert_allclose(shifted, model.positions + shift, atol=1e-9)
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(
        prepared.input_positions(prepared.positions @ turn.T), model.positions @ turn.T, atol=1e-9
    )


def test_protonation_follows_the_input(data_dir: Path, tmp_path: Path) -> None:
    text = (data_dir / "pair_adk/adk_open.pdb").read_text()
    path = tmp_path / "m.pdb"
    for name, expected in (("HSD", {"HD1"}), ("HSP", {"HD1", "HE2"}), ("HSE", {"HE2"})):
        lines = [
            line.replace("HSD", name)
            for line in text.splitlines()
            if line.startswith("ATOM")
            and 124 <= int(line[22:26]) <= 128
            and not line[12:16].strip().startswith("H")
        ]
        prepared = prepare(read_model(written(path, lines)))
        ring = next(residue for residue in prepared.topology.residues() if residue.name == "HIS")
        assert {atom.name for atom in ring.atoms()} & {"HD1", "HE2"} == expected


def test_ions_waters_and_unknown_atoms_of_one_element(data_dir: Path, tmp_path: Path) -> None:
    lines = fragment_lines(data_dir)
    corner = read_model(data_dir / FRAGMENT).positions.max(axis=0)
    lines += [
        hetatm(900, "MG", "MG", 201, corner + 5, "MG"),
        hetatm(901, "O", "HOH", 202, corner + 9, "O"),
        hetatm(902, "O", "HOH", 202, corner + 13, "O"),
        hetatm(903, "XE", "XE", 203, corner + 17, "XE"),
    ]
    prepared = prepare(read_model(written(tmp_path / "ions.pdb", lines)))
    assert prepared.report.rigid_residues == ["XE A 203 (1 atoms)"]
    waters = [residue for residue in prepared.topology.residues() if residue.name == "HOH"]
    assert [len(water) for water in waters] == [3, 3]
    force = next(f for f in prepared.system().getForces() if isinstance(f, openmm.NonbondedForce))
    magnesium = next(atom for atom in prepared.topology.atoms() if atom.name == "MG")
    assert force.getParticleParameters(magnesium.index)[0] == 2 * unit.elementary_charge
    _, energy = minimised(prepared)
    assert np.isfinite(energy)


def nucleotides(path: Path) -> Path:
    """Write three nucleotides, joined 1.6 Å apart, from pdbfixer's ideal coordinates."""
    import pdbfixer

    folder = Path(pdbfixer.__file__).parent / "templates"
    lines: list[str] = []
    end, direction = np.zeros(3), np.zeros(3)
    for number, name in enumerate(("DA", "DT", "DG"), start=1):
        template = app.PDBFile(str(folder / f"{name}.pdb"))
        atoms = [a for a in template.topology.atoms() if not is_hydrogen(a) and a.name != "OP3"]
        places = np.array(template.positions.value_in_unit(unit.angstrom))
        index = {a.name: a.index for a in atoms}
        places += end + 1.6 * direction - places[index["P"]]
        end = places[index["O3'"]]
        direction = end - places[[a.index for a in atoms]].mean(axis=0)
        direction /= np.linalg.norm(direction)
        for atom in atoms:
            line = hetatm(len(lines) + 1, atom.name, name, number, places[atom.index], atom.element.symbol)
            lines.append(line.replace("HETATM", "ATOM  "))
    return written(path, lines)


def test_nucleic_acid_that_begins_with_a_phosphate(tmp_path: Path) -> None:
    model = read_model(nucleotides(tmp_path / "dna.pdb"))
    assert len(list(model.topology.chains())) == 1
    prepared = prepare(model)
    assert prepared.report.rigid_residues == []
    assert prepared.report.adapted_residues == ["DA A 1"]
    _, energy = minimised(prepared, 200)
    assert np.isfinite(energy) and energy < 1e4


def test_preparing_twice_gives_the_same_bits(data_dir: Path) -> None:
    model = read_model(data_dir / FRAGMENT)
    first, second = prepare(model), prepare(model)
    np.testing.assert_array_equal(first.positions, second.positions)


def test_hydrogen_mass_and_cutoff_reach_the_system(data_dir: Path, tmp_path: Path) -> None:
    prepared = prepare(read_model(written(tmp_path / "m.pdb", fragment_lines(data_dir))))
    system = prepared.system(nonbonded_cutoff=9 * unit.angstrom, hydrogen_mass=3.0, constraints=None)
    force = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    assert force.getCutoffDistance() == 0.9 * unit.nanometer
    hydrogen = next(atom for atom in prepared.topology.atoms() if is_hydrogen(atom))
    assert system.getParticleMass(hydrogen.index) == 3 * unit.dalton
    assert system.getNumConstraints() == 0
    assert len(list(system.getForces())) == 4


def test_preparation_errors(data_dir: Path, tmp_path: Path) -> None:
    trace = [line for line in fragment_lines(data_dir) if line[12:16] == " CA "]
    with pytest.raises(InputError, match="Cα trace"):
        prepare(read_model(written(tmp_path / "trace.pdb", trace)))
    model = read_model(written(tmp_path / "m.pdb", fragment_lines(data_dir)))
    with pytest.raises(InputError, match=r"nosuch\.xml"):
        prepare(model, "nosuch.xml")
    prepared = prepare(model)
    with pytest.raises(InputError, match="force field cannot"):
        prepared.system(nonbonded_method=app.PME)
    with pytest.raises(InputError, match="expected"):
        prepared.input_positions(prepared.positions[1:])


@pytest.mark.parametrize("name", ["pair_adk/adk_open.pdb", "xraymap_3pqr_R32/3pqr.pdb"])
def test_written_pdb_is_the_input_at_other_positions(data_dir: Path, tmp_path: Path, name: str) -> None:
    model = read_model(data_dir / name)
    write_pdb(tmp_path / "out.pdb", model, (model.positions + 1.25) * unit.angstrom)
    again = read_model(tmp_path / "out.pdb")
    np.testing.assert_allclose(again.positions, model.positions + 1.25, atol=6e-4)
    np.testing.assert_allclose(again.b_factors, model.b_factors, atol=6e-3)
    for old, new in zip(model.records, again.records, strict=True):
        for part in WRITTEN:
            assert getattr(old, part) == getattr(new, part)
    # An independent reader sees the same atoms.
    trajectory = mdtraj.load(str(tmp_path / "out.pdb"), standard_names=False)
    np.testing.assert_allclose(trajectory.xyz[0] * 10, again.positions, atol=2e-3)
    assert [atom.name for atom in trajectory.topology.atoms] == [record.name for record in model.records]
    assert os.listdir(tmp_path) == ["out.pdb"]


def test_written_mmcif_is_read_by_others(data_dir: Path, tmp_path: Path) -> None:
    prepared = prepare(read_model(data_dir / "emd21457_ntd/6vyb_Ndom.pdb"))
    path = tmp_path / "fitted.cif"
    write_cif(path, prepared.topology, prepared.positions, prepared.b_factors)
    again = read_model(path)
    np.testing.assert_allclose(again.positions, prepared.positions, atol=1e-3)
    np.testing.assert_allclose(again.b_factors, prepared.b_factors, atol=1e-2)
    assert bonds_between_residues(again.topology) == bonds_between_residues(prepared.topology)
    other = app.PDBxFile(str(path)).topology
    assert [atom.name for atom in other.atoms()] == [atom.name for atom in prepared.topology.atoms()]
    assert [r.id for r in other.residues()] == [r.id for r in prepared.topology.residues()]
    trajectory = mdtraj.load(str(path))
    np.testing.assert_allclose(trajectory.xyz[0] * 10, prepared.positions, atol=2e-3)


def test_pdb_format_limits_are_told_and_never_written(data_dir: Path, tmp_path: Path) -> None:
    model = read_model(data_dir / "emd3488_5ni1/modelangelo_5ni1.cif")
    assert "chain 'Ba'" in pdb_limit(model, model.positions)
    with pytest.raises(InputError, match="PDB format cannot hold"):
        write_pdb(tmp_path / "out.pdb", model, model.positions)
    fragment = read_model(data_dir / FRAGMENT)
    assert pdb_limit(fragment, fragment.positions) is None
    assert "coordinate" in pdb_limit(fragment, fragment.positions + 1e4)
    with pytest.raises(InputError, match="one for each"):
        write_pdb(tmp_path / "out.pdb", fragment, fragment.positions[1:])
    with pytest.raises(InputError, match="not a number"):
        write_cif(tmp_path / "out.cif", fragment.topology, fragment.positions * np.nan)
    with pytest.raises(InputError, match="cannot be written"):
        write_pdb(tmp_path / "nowhere" / "out.pdb", fragment, fragment.positions)
    assert os.listdir(tmp_path) == []
