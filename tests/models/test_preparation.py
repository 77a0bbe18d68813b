from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gemmi
import numpy as np
import openmm
import pytest
from openmm import app, unit
from scipy.spatial.transform import Rotation

from openmm_density.base.errors import InputError
from openmm_density.models import Prepared, prepare
from openmm_density.models.chemistry.elements import is_hydrogen
from openmm_density.models.chemistry.ideal_geometry import angles_at
from openmm_density.models.chemistry.torsions import torsion_angles
from openmm_density.models.preparation.missing_terms import LINK_FORCE_CONSTANT
from openmm_density.models.structure_files import write_cif, write_pdb
from openmm_density.models.structures import Model, read_model
from openmm_density.restraints import PlanarityRestraint
from openmm_density.validation.geometry import geometry_report

from ..fragments import write_fragment
from ..small_models import ADK_OPEN, FRAGMENT, fragment_lines, hetatm, written


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


@pytest.mark.parametrize(
    "name",
    [FRAGMENT, "emd21457_ntd/6vyb_Ndom.pdb", "xraymap_3pqr_R32/3pqr.pdb"],
    ids=["card", "spike", "rhodopsin"],
)
def test_prepared_keeps_every_input_atom_and_minimises(small_data: Path, name: str) -> None:
    model = read_model(small_data / name)
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


def test_report_names_what_was_done(small_data: Path) -> None:
    prepared = prepare(read_model(small_data / "emd21457_ntd/6vyb_Ndom.pdb"))
    report = prepared.report
    assert report.rigid_residues == [f"A NAG {n} (14 atoms)" for n in (1301, 1302, 1305)]
    assert report.adapted_residues == ["A ASN 61", "A ASN 122", "A ASN 282"]
    assert report.added_heavy_atoms["A CYS 136"] == ["SG"]
    assert report.chain_breaks[0] == "A HIS 69 | A PRO 82"
    assert len(report.links) == 3
    assert any("A NAG 1301 (14 atoms)" in sentence for sentence in report.sentences)
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in report.sentences)
    assert report.as_dict()["added_hydrogens"] == report.added_hydrogens > 1500
    glycosylated = next(residue for residue in prepared.topology.residues() if residue.id == "61")
    # In the plane of the amide, under the name that the monomer library keeps.
    places = {atom.name: prepared.positions[atom.index] for atom in glycosylated.atoms()}
    assert "HD21" in places and "HD22" not in places
    cg, nd2, od1, hydrogen = (places[name] for name in ("CG", "ND2", "OD1", "HD21"))
    normal = np.cross(cg - nd2, od1 - cg)
    assert abs((hydrogen - nd2) @ normal) / np.linalg.norm(normal) < 0.3
    system = prepared.system()
    force = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    charge = sum(
        force.getParticleParameters(atom.index)[0].value_in_unit(unit.elementary_charge)
        for atom in glycosylated.atoms()
    )
    assert charge == pytest.approx(0.0, abs=1e-4)


def haem_chain(small_data: Path, tmp_path: Path, name: str = "HEM") -> Model:
    text = (small_data / "emd3488_5ni1/5me2.pdb").read_text().splitlines()
    lines = [line for line in text if line.startswith(("ATOM", "HETATM")) and line[21] == "A"]
    text, lines = ([line.replace("HEM A", f"{name} A") for line in each] for each in (text, lines))
    return read_model(
        written(tmp_path / "haem.pdb", [text[0], *(x for x in text if x.startswith("LINK")), *lines])
    )


def test_spheres_do_not_widen_the_angles_at_a_residue_that_is_not_known(
    small_data: Path, tmp_path: Path
) -> None:
    """Of pairs three bonds apart, which a force field scales down: by 6 degrees here, in a map by 36 (S-hydroxycysteine)."""
    lines = [
        line[:17] + "XAA" + line[20:] if int(line[22:26]) == 4 else line
        for line in fragment_lines(small_data, 1, 7)
    ]
    prepared = prepare(read_model(written(tmp_path / "unknown.pdb", lines)))
    context, _ = minimised(prepared, 300)
    atoms = {(atom.residue.id, atom.name): atom.index for atom in prepared.topology.atoms()}
    angle = np.array([[atoms["3", "C"], atoms["4", "N"], atoms["4", "CA"]]])
    before, after = (angles_at(each, angle)[0] for each in (prepared.positions, positions_of(context)))
    assert abs(after - before) < 3


def test_haem_stays_rigid_and_on_its_histidine(small_data: Path, tmp_path: Path) -> None:
    model = haem_chain(small_data, tmp_path)
    prepared = prepare(model)
    assert prepared.report.rigid_residues == ["A HEM 201 (43 atoms)"]
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
def test_other_force_fields_take_ligands_too(
    small_data: Path, tmp_path: Path, files: tuple[str, ...]
) -> None:
    lines = fragment_lines(small_data)
    corner = read_model(small_data / FRAGMENT).positions.max(axis=0)
    sulphur = corner + 6
    lines.append(hetatm(900, "S", "SO4", 300, sulphur, "S"))
    for k, corner_of in enumerate(([1, 1, 1], [-1, -1, 1], [-1, 1, -1], [1, -1, -1]), start=1):
        place = sulphur + 0.86 * np.array(corner_of)
        lines.append(hetatm(900 + k, f"O{k}", "SO4", 300, place, "O"))
    prepared = prepare(read_model(written(tmp_path / "so4.pdb", lines)), files)
    assert prepared.report.rigid_residues == ["A SO4 300 (5 atoms)"]
    context, energy = minimised(prepared)
    assert np.isfinite(energy) and energy < 1e5
    end = positions_of(context)[prepared.rigid[0]]
    own = np.array([prepared.shapes.places[k] for k in prepared.rigid[0]])
    shape = [np.linalg.norm(places[:, None] - places, axis=-1) for places in (own, end)]
    np.testing.assert_allclose(*shape, atol=0.05)


@pytest.mark.parametrize("bad", ["an oxygen within the carbon", "a far carbon", "oxygens beside each other"])
def test_a_carboxylate_that_no_molecule_has_is_mended(small_data: Path, tmp_path: Path, bad: str) -> None:
    """As of the haems of 4HHB."""
    model = haem_chain(small_data, tmp_path)
    assert prepare(model).mended_ends == {}
    named = [record.describe() for record in model.records]
    group = [named.index(f"A HEM 201 {name}") for name in ("CBA", "CGA", "O1A", "O2A")]
    positions = model.positions.copy()
    before, carbon, oxygen, other = positions[group]
    if bad == "an oxygen within the carbon":
        positions[group[2]] = carbon + 0.63 * (oxygen - carbon) / np.linalg.norm(oxygen - carbon)
    elif bad == "a far carbon":
        positions[group[1:]] += 0.6 * (carbon - before) / np.linalg.norm(carbon - before)
    else:
        positions[group[2]] = 0.6 * oxygen + 0.4 * other
    prepared = prepare(replace(model, positions=positions))
    ends = prepared.prepared_index[group]
    moved = ends[1:] if bad == "a far carbon" else ends[2:]
    assert set(prepared.mended_ends) == set(moved.tolist())
    told = [
        sentence
        for sentence in prepared.report.sentences
        if sentence.startswith("Atoms at impossible distances")
    ]
    assert len(told) == 1 and "A HEM 201 O1A" in told[0]
    before, carbon, *oxygens = positions_of(minimised(prepared, 200)[0])[ends]
    arms = [each - carbon for each in (before, *oxygens)]
    lengths = [float(np.linalg.norm(arm)) for arm in arms]
    assert lengths == pytest.approx([1.52, 1.25, 1.25], abs=0.12)
    angles = [
        np.degrees(np.arccos(arms[i] @ arms[j] / lengths[i] / lengths[j]))
        for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    assert angles == pytest.approx([117.5, 117.5, 125.0], abs=8.0)
    # Its bonds are as stiff as those of links, so that no density presses them together.
    system = prepared.system()  # Python's forces do not keep it
    springs = next(f for f in system.getForces() if f.getName() == "RigidResidues")
    stiffness = {
        frozenset(springs.getBondParameters(k)[:2]): springs.getBondParameters(k)[3]._value
        for k in range(springs.getNumBonds())
    }
    assert stiffness[frozenset(map(int, ends[1:3]))] >= 1e5


def test_rigid_springs_are_at_rest_in_the_input(small_data: Path, tmp_path: Path) -> None:
    # Of a haem's own name the library's shape is known.
    prepared = prepare(haem_chain(small_data, tmp_path, name="H1M"))
    context = context_of(prepared, rigid_force_group=7)
    energy = context.getState(energy=True, groups={7}).getPotentialEnergy()._value
    # But for that of iron and histidine: 2.657 Å, where 2.46 Å is the most that is usual.
    assert energy == pytest.approx(0.5 * LINK_FORCE_CONSTANT * 0.0197**2, rel=0.02)
    moved = prepared.positions.copy()
    moved[prepared.rigid[0]] += 1.0
    context.setPositions(moved / 10)
    assert context.getState(energy=True, groups={7}).getPotentialEnergy()._value > 100


def test_a_twisted_acetamide_is_flattened(small_data: Path, tmp_path: Path) -> None:
    """As of N-acetylglucosamine in a model of 1GZM, by 94°: planarity against springs opened C2-N2-C7 to 169°."""
    text = (small_data / "xraymap_3pqr_R32/3pqr.pdb").read_text().splitlines()
    model = read_model(written(tmp_path / "sugar.pdb", [x for x in text if x[17:26] == "NAG A 402"]))
    assert prepare(model).mended_ends == {}
    place = {record.name: index for index, record in enumerate(model.records)}
    turned, carbon = model.positions.copy(), model.positions[place["C7"]]
    axis = carbon - model.positions[place["N2"]]
    for name in ("O7", "C8"):
        turn = Rotation.from_rotvec(np.radians(94.0) * axis / np.linalg.norm(axis))
        turned[place[name]] = carbon + turn.apply(turned[place[name]] - carbon)
    prepared = prepare(replace(model, positions=turned))
    assert set(prepared.mended_ends) == set(prepared.prepared_index[[place["O7"], place["C8"]]].tolist())
    system = prepared.system(constraints=None, rigidWater=False)
    system.addForce(PlanarityRestraint(prepared.topology, prepared.positions, system=system).create_force())
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatform("Reference"))
    context.setPositions(prepared.positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, 1, 300)
    chosen = prepared.prepared_index[[place[name] for name in ("C2", "N2", "C7", "O7")]]
    torsion, angle = (
        torsion_angles(positions_of(context), chosen[None])[0],
        angles_at(positions_of(context), chosen[None, :3])[0],
    )
    assert abs(np.degrees(torsion)) < 25 and angle == pytest.approx(122, abs=6)


def test_residue_in_the_chain_that_nobody_knows_keeps_its_peptide_bonds(
    small_data: Path, tmp_path: Path
) -> None:
    lines = [
        f"{line[:17]}XYZ{line[20:]}" if line[17:20] == "TYR" and int(line[22:26]) == 9 else line
        for line in fragment_lines(small_data, 1, 14)
    ]
    model = read_model(written(tmp_path / "xyz.pdb", lines))
    assert len(list(model.topology.chains())) == 1
    prepared = prepare(model)
    assert prepared.report.rigid_residues == ["A XYZ 9 (12 atoms)"]
    assert len(prepared.links) == 2
    context, _ = minimised(prepared, 100)
    end = positions_of(context)
    for i, j in prepared.links:
        assert np.linalg.norm(end[i] - end[j]) == pytest.approx(1.33, abs=0.1)


def test_selenomethionine_is_simulated_as_methionine_and_written_as_itself(
    small_data: Path, tmp_path: Path
) -> None:
    lines = [
        line.replace("MET", "MSE").replace(" SD ", "SE  ").replace("           S", "          SE")
        if line[17:20] == "MET"
        else line
        for line in fragment_lines(small_data)
    ]
    model = read_model(written(tmp_path / "mse.pdb", lines))
    prepared = prepare(model)
    assert prepared.report.substitutions == ["A MSE 1 as MET"]
    assert prepared.report.rigid_residues == []
    assert (prepared.prepared_index >= 0).all()
    write_pdb(tmp_path / "out.pdb", model, prepared.input_positions(prepared.positions))
    again = read_model(tmp_path / "out.pdb")
    selenium = [record for record in again.records if record.element == "Se"]
    assert [(record.name, record.residue_name) for record in selenium] == [("SE", "MSE")]


def test_hydrogen_without_counterpart_rides_on_its_residue(small_data: Path, tmp_path: Path) -> None:
    lines = fragment_lines(small_data)
    oxygen = next(line for line in lines if line[17:20] == "GLU" and line[12:16].strip() == "OE1")
    x = float(oxygen[30:38])
    proton = f"{oxygen[:12]} HE1{oxygen[16:30]}{x + 0.97:8.3f}{oxygen[38:76]} H"
    lines.insert(lines.index(oxygen) + 1, proton)
    model = read_model(written(tmp_path / "proton.pdb", lines))
    prepared = prepare(model)
    assert prepared.report.dropped_hydrogens == ["A GLU 5 HE1"]
    lost = int(np.flatnonzero(prepared.prepared_index < 0)[0])
    assert model.records[lost].name == "HE1"
    shift = np.array([1.0, 2.0, 3.0])
    shifted = prepared.input_positions((prepared.positions + shift) * unit.angstrom)
    np.testing.assert_allclose(shifted, model.positions + shift, atol=1e-9)
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(
        prepared.input_positions(prepared.positions @ turn.T), model.positions @ turn.T, atol=1e-9
    )


def test_protonation_follows_the_input(small_data: Path, tmp_path: Path) -> None:
    text = ADK_OPEN.read_text().replace("HIS", "HSD")
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


def test_ions_waters_and_unknown_atoms_of_one_element(small_data: Path, tmp_path: Path) -> None:
    lines = fragment_lines(small_data)
    corner = read_model(small_data / FRAGMENT).positions.max(axis=0)
    lines += [
        hetatm(900, "MG", "MG", 201, corner + 5, "MG"),
        hetatm(901, "O", "HOH", 202, corner + 9, "O"),
        hetatm(902, "O", "HOH", 202, corner + 13, "O"),
        hetatm(903, "XE", "XE", 203, corner + 17, "XE"),
    ]
    prepared = prepare(read_model(written(tmp_path / "ions.pdb", lines)))
    assert prepared.report.rigid_residues == ["A XE 203 (1 atoms)"]
    waters = [residue for residue in prepared.topology.residues() if residue.name == "HOH"]
    assert [len(water) for water in waters] == [3, 3]
    system = prepared.system()
    force = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    magnesium = next(atom for atom in prepared.topology.atoms() if atom.name == "MG")
    # Alone, without the water that would shield it.
    assert prepared.unscreened[-1].atoms == (magnesium.index,)
    assert force.getParticleParameters(magnesium.index)[0] == 0 * unit.elementary_charge
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
    assert prepared.report.adapted_residues == ["A DA 1"]
    _, energy = minimised(prepared, 200)
    assert np.isfinite(energy) and energy < 1e4


def test_nucleotides_with_a_whole_phosphate_are_described(tmp_path: Path) -> None:
    """Each alone, with the third free oxygen at its phosphorus: no force field has such a residue."""
    lines = [x for x in nucleotides(tmp_path / "dna.pdb").read_text().splitlines() if x.startswith("ATOM")]
    places = {(int(x[22:26]), x[12:16].strip()): [float(x[k : k + 8]) for k in (30, 38, 46)] for x in lines}
    for number in (1, 3):
        arms = [np.subtract(places[number, name], places[number, "P"]) for name in ("OP1", "OP2", "O5'")]
        oxygen = places[number, "P"] - 1.48 * np.sum(arms, axis=0) / np.linalg.norm(np.sum(arms, axis=0))
        name = "DA" if number == 1 else "DG"
        lines.append(hetatm(900 + number, "OP3", name, number, oxygen, "O").replace("HETATM", "ATOM  "))
    alone = [x for x in lines if int(x[22:26]) != 2]
    prepared = prepare(read_model(written(tmp_path / "alone.pdb", alone)))
    assert prepared.report.rigid_residues == []
    assert len(prepared.report.adapted_residues) == 2
    system = prepared.system()
    force = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    charges = [force.getParticleParameters(k)[0]._value for k in range(force.getNumParticles())]
    # Amber's nucleotides of the 3' end have -0.69, and the oxygen one more.
    assert sum(charges) == pytest.approx(2 * -1.6921, abs=1e-3)
    _, energy = minimised(prepared, 200)
    assert np.isfinite(energy) and energy < 1e4


@pytest.mark.parametrize("lost", [("P", "OP1", "OP2"), ("OP1", "OP2")])
def test_phosphates_are_built_where_they_were(
    small_data: Path, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    lines = (small_data / "zoo" / "1bna_strand.pdb").read_text().splitlines()
    whole = read_model(small_data / "zoo" / "1bna_strand.pdb")
    bare = [x for x in lines if x.startswith("ATOM") and x[12:16].strip() not in lost]
    prepared = prepare(read_model(written(tmp_path / "bare.pdb", bare)))
    places = {(a.residue.id, a.name): whole.positions[a.index] for a in whole.topology.atoms()}
    built = [
        np.linalg.norm(prepared.positions[a.index] - places[a.residue.id, a.name])
        for a in prepared.topology.atoms()
        if a.name in lost
    ]
    assert len(built) == 4 * len(lost) and max(built) < 0.3
    assert [len(names) for names in prepared.report.added_heavy_atoms.values()] == [len(lost)] * 4


def test_hydrogen_mass_and_cutoff_reach_the_system(small_data: Path, tmp_path: Path) -> None:
    prepared = prepare(read_model(written(tmp_path / "m.pdb", fragment_lines(small_data))))
    system = prepared.system(nonbonded_cutoff=9 * unit.angstrom, hydrogen_mass=3.0, constraints=None)
    force = next(f for f in system.getForces() if isinstance(f, openmm.NonbondedForce))
    assert force.getCutoffDistance() == 0.9 * unit.nanometer
    hydrogen = next(atom for atom in prepared.topology.atoms() if is_hydrogen(atom))
    assert system.getParticleMass(hydrogen.index) == 3 * unit.dalton
    assert system.getNumConstraints() == 0
    assert len(list(system.getForces())) == 4


def test_preparation_errors(small_data: Path, tmp_path: Path) -> None:
    trace = [line for line in fragment_lines(small_data) if line[12:16] == " CA "]
    with pytest.raises(InputError, match="Cα trace"):
        prepare(read_model(written(tmp_path / "trace.pdb", trace)))
    model = read_model(written(tmp_path / "m.pdb", fragment_lines(small_data)))
    with pytest.raises(InputError, match=r"nosuch\.xml"):
        prepare(model, "nosuch.xml")
    prepared = prepare(model)
    with pytest.raises(InputError, match="force field cannot"):
        prepared.system(nonbonded_method=app.PME)
    with pytest.raises(InputError, match="positions must be one for each of the 206 prepared atoms"):
        prepared.input_positions(prepared.positions[1:])


def test_a_residue_whose_atoms_are_in_one_place_is_refused(small_data: Path, tmp_path: Path) -> None:
    model = read_model(written(tmp_path / "m.pdb", fragment_lines(small_data)))
    fourth = [atom.index for atom in list(model.topology.residues())[4].atoms()]
    model.positions[fourth] = model.positions[fourth[0]]
    with pytest.raises(InputError, match=r"m\.pdb: there is no room for A GLU 5 H, .* at the same place"):
        prepare(model)


def test_positions_that_are_no_numbers_are_named_and_nothing_is_built(
    small_data: Path, tmp_path: Path
) -> None:
    model = read_model(written(tmp_path / "m.pdb", fragment_lines(small_data)))
    model.positions[3, 1] = np.nan
    with pytest.raises(InputError, match=r"m\.pdb: positions of A [A-Z]{3} 1 \w+ are not numbers: correct"):
        prepare(model)


def test_side_chains_are_built_with_the_right_chirality(small_data: Path, tmp_path: Path) -> None:
    """From N, CA, C and O alone; pdbfixer by itself gives a part of the centres the wrong chirality."""
    lines = fragment_lines(small_data, 1, 12)
    names = ("N", "CA", "C", "O")
    backbone = [line for line in lines if line[12:16].strip() in names]
    model = read_model(written(tmp_path / "backbone.pdb", backbone))
    prepared = prepare(model)
    whole = read_model(written(tmp_path / "whole.pdb", lines))
    betas = {
        atom.residue.id: whole.positions[atom.index] for atom in whole.topology.atoms() if atom.name == "CB"
    }
    built = {
        atom.residue.id: prepared.positions[atom.index]
        for atom in prepared.topology.atoms()
        if atom.name == "CB"
    }
    assert betas.keys() == built.keys()
    assert max(np.linalg.norm(built[number] - betas[number]) for number in betas) < 0.4
    assert geometry_report(prepared.topology, prepared.positions).wrong_centres == []
    residues = [residue.name for residue in whole.topology.residues() if residue.name != "GLY"]
    assert len(prepared.report.added_heavy_atoms) >= len(residues)
    assert all(
        names[:1] == ["CB"] for label, names in prepared.report.added_heavy_atoms.items() if "CB" in names
    )


def test_what_an_earlier_preparation_built_is_kept(tmp_path: Path) -> None:
    """Of the other tautomer of a histidine, and of a side chain whose built atoms have moved, as a fit writes them."""
    structure = gemmi.read_structure(str(ADK_OPEN))
    structure.remove_hydrogens()
    chain = structure[0][0]
    del chain[140:]
    del chain[:128]
    (histidine,) = (place for place, each in enumerate(chain) if each.name == "HIS")
    lysine = next(each for each in chain if each.name == "LYS")
    for name in ("CE", "NZ"):
        lysine.remove_atom(name, "\0", gemmi.Element(name[0]))
    structure.write_pdb(str(tmp_path / "given.pdb"))
    given = read_model(tmp_path / "given.pdb")
    first = prepare(given)
    names = {atom.name for atom in list(first.topology.residues())[histidine].atoms()}
    own, other = ("HD1", "HE2") if "HD1" in names else ("HE2", "HD1")
    # A fit's own file of the other tautomer, with what was built moved.
    built = first.input_index < 0
    moved = first.positions + built[:, None] * 0.3
    write_cif(tmp_path / "completed.cif", first.topology, moved)
    completed = gemmi.read_structure(str(tmp_path / "completed.cif"))
    for atom in completed[0][0][histidine]:
        if atom.name == own:
            atom.name = other
    completed.make_mmcif_document().write_file(str(tmp_path / "completed.cif"))
    again = prepare(given, completed=read_model(tmp_path / "completed.cif"))
    residues = list(again.topology.residues())
    assert {atom.name for atom in residues[histidine].atoms()} == names - {own} | {other}
    assert again.report.added_heavy_atoms == first.report.added_heavy_atoms
    places = {(atom.residue.index, atom.name): place for atom, place in zip(first.topology.atoms(), moved)}
    for atom, place in zip(again.topology.atoms(), again.positions):
        if atom.residue.index != histidine:
            np.testing.assert_allclose(place, places[atom.residue.index, atom.name], atol=2e-3)
    # Where the residue is elsewhere, its atoms are built anew, and it stays the same tautomer.
    elsewhere = prepare(
        replace(given, positions=given.positions + 5.0), completed=read_model(tmp_path / "completed.cif")
    )
    assert {atom.name for atom in list(elsewhere.topology.residues())[histidine].atoms()} >= {other}
    assert np.linalg.norm(elsewhere.positions - again.positions, axis=1).min() > 5.0


def test_a_model_of_other_residues_completes_none(tmp_path: Path) -> None:
    given = read_model(write_fragment(tmp_path / "given.pdb", residues=5))
    other = read_model(write_fragment(tmp_path / "other.pdb", residues=6))
    with pytest.raises(InputError, match=r"other\.pdb: its residues differ from those of the model"):
        prepare(given, completed=other)
