from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys

import gemmi
import mdtraj
import numpy as np
import pytest
from openmm import app, unit

from openmm_density import DensityMap
from openmm_density.analysis import (
    ca_rmsd,
    correlation,
    fsc,
    load_trajectory,
    match_alpha_carbons,
    q_score,
    residue_correlation,
    score,
)
from openmm_density.errors import InputError
from openmm_density.models import read_model
from openmm_density.validation.correlation import MapCorrelation
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.q_score import q_scores


@pytest.fixture(scope="module")
def kinesin(data_dir):
    return load_trajectory(data_dir / "emd6187_kinesin" / "1bg2_K_fitted.pdb")


@pytest.fixture(scope="module")
def kinesin_map(data_dir):
    return DensityMap.from_file(data_dir / "emd6187_kinesin" / "chain_K_box.ccp4")


@pytest.fixture(scope="module")
def kinesin_path(data_dir):
    return data_dir / "emd6187_kinesin" / "1bg2_K_fitted.pdb"


def moving(trajectory, n_frames, step=0.05):
    """Make a trajectory that moves away along x by a step in nm."""
    shifts = np.arange(n_frames)[:, None, None] * np.array([step, 0, 0])
    return mdtraj.Trajectory(trajectory.xyz + shifts, trajectory.topology)


def alpha_carbons(path):
    """Read Cα positions by chain, number and insertion code, with gemmi alone."""
    structure = gemmi.read_structure(str(path))
    return {
        (chain.name, str(residue.seqid)): np.array(atom.pos.tolist())
        for chain in structure[0]
        for residue in chain
        for atom in residue
        if atom.name == "CA" and atom.element.name == "C"
    }


def renumbered(topology, *, chain=None, offset=0, names=None):
    """Copy a topology with other chain ids, numbers or names."""
    copy = app.Topology()
    for old_chain in topology.chains():
        new_chain = copy.addChain(old_chain.id if chain is None else chain)
        for residue in old_chain.residues():
            number = str(int(residue.id) + offset)
            new = copy.addResidue(names or residue.name, new_chain, number, residue.insertionCode)
            for atom in residue.atoms():
                copy.addAtom(atom.name, atom.element, new)
    return copy


def parts(topology, keep):
    """Copy the residues for which keep(residue) is true."""
    copy = app.Topology()
    for old_chain in topology.chains():
        new_chain = copy.addChain(old_chain.id)
        for residue in old_chain.residues():
            if keep(residue):
                new = copy.addResidue(residue.name, new_chain, residue.id, residue.insertionCode)
                for atom in residue.atoms():
                    copy.addAtom(atom.name, atom.element, new)
    return copy


def names_of(topology, indices):
    atoms = list(topology.atoms())
    return [(atoms[i].residue.name, atoms[i].residue.id, atoms[i].name) for i in indices]


class TestLoading:
    def test_model_is_that_of_read_model(self, kinesin, kinesin_path):
        model = read_model(kinesin_path)
        assert kinesin.n_frames == 1
        assert np.abs(kinesin.xyz[0] * 10 - model.positions).max() < 1e-4
        assert [a.name for a in kinesin.topology.atoms] == [a.name for a in model.topology.atoms()]
        assert np.allclose(kinesin.unitcell_lengths[0] * 10, model.cell[:3])

    def test_cif_and_gzipped_models_are_read(self, data_dir, kinesin, kinesin_path, tmp_path):
        packed = tmp_path / "model.pdb.gz"
        packed.write_bytes(gzip.compress(kinesin_path.read_bytes()))
        assert np.array_equal(load_trajectory(packed).xyz, kinesin.xyz)
        cif = data_dir / "emd3488_5ni1" / "5ni1_updated.cif"
        assert load_trajectory(cif).n_atoms == len(read_model(cif).positions)

    @pytest.mark.parametrize("suffix", [".dcd", ".xtc", ".trr", ".nc"])
    def test_trajectory_with_a_model_as_topology(self, kinesin, kinesin_path, tmp_path, suffix):
        path = tmp_path / f"run{suffix}"
        moving(kinesin, 3).save(str(path))
        loaded = load_trajectory(path, kinesin_path)
        assert loaded.n_frames == 3
        assert np.abs(loaded.xyz - moving(kinesin, 3).xyz).max() < 6e-4
        assert loaded.topology.residue(0).chain.chain_id == "A"

    def test_nothing_is_printed(self, kinesin, kinesin_path, tmp_path, capfd):
        path = tmp_path / "run.dcd"
        moving(kinesin, 2).save(str(path))
        capfd.readouterr()
        load_trajectory(path, kinesin_path)
        captured = capfd.readouterr()
        assert captured.out == captured.err == ""

    def test_nothing_is_printed_to_a_pipe_at_exit(self, kinesin, kinesin_path, tmp_path):
        path = tmp_path / "run.dcd"
        moving(kinesin, 2).save(str(path))
        script = (
            "import sys; from openmm_density.analysis import load_trajectory; "
            "print(load_trajectory(*sys.argv[1:]).n_frames)"
        )
        command = [sys.executable, "-c", script, str(path), str(kinesin_path)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "2\n"

    def test_every_model_of_a_file_is_a_frame(self, kinesin, kinesin_path, tmp_path):
        structure = gemmi.read_structure(str(kinesin_path))
        second = structure[0].clone()
        second.num = 2
        for atom in second.all():
            atom.atom.pos += gemmi.Position(1, 2, 3)
        structure.add_model(second)
        for name in ("two.pdb", "two.cif"):
            path = tmp_path / name
            if name.endswith("pdb"):
                structure.write_pdb(str(path))
            else:
                structure.make_mmcif_document().write_file(str(path))
            loaded = load_trajectory(path)
            assert loaded.n_frames == 2
            assert np.allclose((loaded.xyz[1] - loaded.xyz[0]) * 10, [1, 2, 3], atol=1e-3)
            assert np.allclose(loaded.xyz[0], kinesin.xyz[0], atol=1e-4)

    def test_further_models_follow_the_kept_conformers(self, tmp_path):
        line = "ATOM  {:5d}  CA {:1s}ALA A{:4d}    {:8.3f}{:8.3f}{:8.3f}{:6.2f}  0.00           C\n"
        text = ""
        for model in (1, 2):
            text += f"MODEL     {model:4d}\n"
            text += line.format(1, "A", 1, model, 0, 0, 0.3) + line.format(2, "B", 1, 10 * model, 0, 0, 0.7)
            text += line.format(3, "", 2, 0, model, 0, 1) + "ENDMDL\n"
        path = tmp_path / "models.pdb"
        path.write_text(text + "END\n")
        loaded = load_trajectory(path)
        assert np.allclose(loaded.xyz * 10, [[[10, 0, 0], [0, 1, 0]], [[20, 0, 0], [0, 2, 0]]], atol=1e-4)

    def test_models_of_different_atoms_are_refused(self, kinesin_path, tmp_path):
        structure = gemmi.read_structure(str(kinesin_path))
        second = structure[0].clone()
        second.num = 2
        del second[0][0]
        structure.add_model(second)
        path = tmp_path / "two.pdb"
        structure.write_pdb(str(path))
        with pytest.raises(InputError, match="model 2 has other atoms"):
            load_trajectory(path)

    def test_trajectory_without_topology(self, kinesin, tmp_path):
        path = tmp_path / "run.dcd"
        kinesin.save(str(path))
        with pytest.raises(InputError, match=r"run\.dcd: .*--topology"):
            load_trajectory(path)

    @pytest.mark.parametrize("suffix", [".dcd", ".xtc", ".nc", ".pdb"])
    def test_numbers_of_atoms_that_differ(self, kinesin, data_dir, tmp_path, suffix):
        path = tmp_path / f"run{suffix}"
        kinesin.save(str(path))
        other = data_dir / "pair_adk" / "adk_open.pdb"
        with pytest.raises(InputError, match=rf"has {kinesin.n_atoms} atoms .* has 3341"):
            load_trajectory(path, other)

    @pytest.mark.parametrize("suffix", [".dcd", ".xtc", ".trr", ".nc", ".xyz", ".gro", ".rst7"])
    def test_damaged_files(self, kinesin_path, tmp_path, suffix):
        path = tmp_path / f"run{suffix}"
        path.write_text("this is no trajectory\n" * 20)
        with pytest.raises(InputError, match=rf"run\{suffix}: cannot be read as a \{suffix} trajectory"):
            load_trajectory(path, kinesin_path)

    @pytest.mark.parametrize("suffix", [".dcd", ".xtc"])
    def test_missing_files(self, kinesin_path, tmp_path, suffix):
        with pytest.raises(InputError, match="there is no such file"):
            load_trajectory(tmp_path / f"none{suffix}", kinesin_path)
        existing = tmp_path / f"run{suffix}"
        existing.touch()
        for topology in ("none.pdb", "none.prmtop"):
            with pytest.raises(InputError, match=rf"{topology}: there is no such file"):
                load_trajectory(existing, tmp_path / topology)

    def test_unknown_formats(self, kinesin_path, tmp_path):
        for name in ("run.docx", "run"):
            shutil.copy(kinesin_path, tmp_path / name)
            with pytest.raises(InputError, match="the ending is neither"):
                load_trajectory(tmp_path / name)
        (tmp_path / "run.dcd").touch()
        with pytest.raises(InputError, match="not that of a topology"):
            load_trajectory(tmp_path / "run.dcd", tmp_path / "run.docx")


class TestScores:
    def test_frames_agree_with_the_correlation_of_each(self, kinesin, kinesin_map, kinesin_path):
        trajectory = moving(kinesin, 4)
        scores = score(trajectory, kinesin_map, 5.0)
        model = read_model(kinesin_path)
        correlation = MapCorrelation(kinesin_map, model.topology, 5.0)
        assert scores.residue_correlations.shape == (4, model.topology.getNumResidues())
        for frame in range(4):
            expected = correlation.evaluate(model.positions + np.array([0.5 * frame, 0, 0]))
            assert scores.cc_mask[frame] == pytest.approx(expected.cc_mask, abs=1e-5)
            assert np.allclose(
                scores.residue_correlations[frame], expected.residues, atol=1e-4, equal_nan=True
            )
        assert scores.cc_mask[0] == pytest.approx(0.60, abs=0.05)
        assert (np.diff(scores.cc_mask) < 0).all()

    def test_stride(self, kinesin, kinesin_map):
        trajectory = moving(kinesin, 5)
        trajectory.time = np.arange(5) * 2.0
        every, other = (score(trajectory, kinesin_map, 5.0 * unit.angstrom, stride=n) for n in (1, 2))
        assert other.frames.tolist() == [0, 2, 4]
        assert other.times.tolist() == [0, 4, 8]
        assert np.array_equal(other.cc_mask, every.cc_mask[::2])
        with pytest.raises(InputError, match="stride=0"):
            score(trajectory, kinesin_map, 5.0, stride=0)

    def test_labels_have_chain_name_number_and_insertion_code(self, tmp_path, kinesin_map):
        path = tmp_path / "model.pdb"
        path.write_text(
            "ATOM      1  CA  HIS A  57      10.000  10.000  10.000  1.00  0.00           C\n"
            "ATOM      2  CA  HIS A  57B     13.000  10.000  10.000  1.00  0.00           C\n"
        )
        scores = score(load_trajectory(path), kinesin_map, 5.0)
        assert scores.residue_labels == ("A HIS 57", "A HIS 57B")

    def test_json_has_null_for_what_is_undefined(self, kinesin, kinesin_map):
        away = moving(kinesin, 2, step=100.0)
        values = json.loads(json.dumps(score(away, kinesin_map, 5.0).as_dict(), allow_nan=False))
        assert values["cc_mask"][1] == 0.0
        assert set(values["residue_correlations"][1]) == {None}
        assert isinstance(values["residue_correlations"][0][0], float)
        assert values["resolution"] == 5.0 and len(values["residue_labels"]) == kinesin.n_residues

    def test_a_frame_that_is_not_a_number_is_named(self, kinesin, kinesin_map):
        trajectory = moving(kinesin, 3)
        trajectory.xyz[2, 5] = np.nan
        with pytest.raises(InputError, match="frame 2: "):
            score(trajectory, kinesin_map, 5.0)


class TestMeasures:
    def test_frames_are_measured_as_single_models(self, kinesin, kinesin_map, kinesin_path):
        model, trajectory = read_model(kinesin_path), moving(kinesin, 3)
        done = []
        options = {"stride": 2, "progress": lambda *numbers: done.append(numbers)}
        overall = correlation(trajectory, kinesin_map, 5.0, **options)
        residues = residue_correlation(trajectory, kinesin_map, 5.0, **options)
        scores = q_score(trajectory, kinesin_map, sigma=0.5, **options)
        curves = fsc(trajectory, kinesin_map, 5.0, **options)
        assert done == [(1, 2), (2, 2)] * 4
        assert (overall.shape, residues.shape) == ((2,), (2, trajectory.n_residues))
        assert [values.shape[0] for values in scores] == [2, 2, 2]
        for row, frame in enumerate((0, 2)):
            positions = trajectory.xyz[frame].astype(np.float64) * 10
            expected = MapCorrelation(kinesin_map, model.topology, 5.0).evaluate(positions)
            assert overall[row] == expected.cc_mask
            np.testing.assert_array_equal(residues[row], expected.residues)
            of_frame = q_scores(kinesin_map, model.topology, positions, sigma=0.5)
            assert scores.mean[row] == of_frame.mean
            np.testing.assert_array_equal(scores.residues[row], of_frame.residues)
            np.testing.assert_array_equal(scores.atoms[row], of_frame.atoms)
            curve = model_fsc(kinesin_map, model.topology, positions, 5.0)
            np.testing.assert_array_equal(curves[row].correlation, curve.correlation)
        assert curves[0].resolution() < curves[1].resolution()

    @pytest.mark.parametrize("measure", [correlation, residue_correlation, fsc, q_score])
    def test_errors_name_the_frame(self, kinesin, kinesin_map, measure):
        trajectory = moving(kinesin, 2)
        trajectory.xyz[1, 3] = np.nan
        arguments = () if measure is q_score else (5.0,)
        with pytest.raises(InputError, match="frame 1: positions contain NaN"):
            measure(trajectory, kinesin_map, *arguments)
        with pytest.raises(InputError, match="stride"):
            measure(trajectory, kinesin_map, *arguments, stride=0)


class TestMatching:
    @pytest.mark.parametrize(
        ("model", "reference", "n_pairs", "expected"),
        [
            ("pair_adk/1ake_s.pdb", "pair_adk/4ake_t.pdb", 214, 8.02),
            ("emd5925_frag/5925_original_1.pdb", "emd5925_frag/5925_native.pdb", 97, 3.56),
            ("emd6374_frag/6374_original_1.pdb", "emd6374_frag/6374_native.pdb", 292, 1.68),
            ("emd3488_5ni1/5me2.pdb", "emd3488_5ni1/5ni1_updated.cif", 566, 0.74),
        ],
    )
    def test_real_pairs(self, data_dir, model, reference, n_pairs, expected):
        first, second = read_model(data_dir / model), read_model(data_dir / reference)
        pairs = match_alpha_carbons(first.topology, second.topology)
        assert len(pairs[0]) == len(pairs[1]) == n_pairs
        assert ca_rmsd(first.positions, second.positions, pairs) == pytest.approx(expected, abs=0.01)

    def test_same_chains_agree_with_gemmi(self, data_dir):
        paths = [data_dir / "emd3488_5ni1" / name for name in ("5me2.pdb", "5ni1_updated.cif")]
        first, second = map(alpha_carbons, paths)
        common = sorted(first.keys() & second.keys())
        oracle = np.sqrt(np.mean([((first[key] - second[key]) ** 2).sum() for key in common]))
        models = [read_model(path) for path in paths]
        pairs = match_alpha_carbons(models[0].topology, models[1].topology)
        assert len(pairs[0]) == len(common)
        assert ca_rmsd(models[0].positions, models[1].positions, pairs) == pytest.approx(oracle, abs=1e-3)

    def test_other_chain_ids_are_paired_by_number(self, data_dir, kinesin_path):
        first = read_model(kinesin_path)
        second = read_model(data_dir / "emd6187_kinesin" / "chain_K_box_complete.pdb")
        pairs = match_alpha_carbons(first.topology, second.topology)
        assert ca_rmsd(first.positions, second.positions, pairs) == pytest.approx(3.18, abs=0.02)
        numbers = [
            [number for _, number, _ in names_of(m.topology, p)] for m, p in zip((first, second), pairs)
        ]
        assert numbers[0] == numbers[1]

    def test_other_numbering_is_paired_by_sequence(self, kinesin_path):
        topology = read_model(kinesin_path).topology
        kept = parts(renumbered(topology, chain="Z", offset=7), lambda residue: int(residue.id) % 50 > 3)
        indices, reference_indices = match_alpha_carbons(kept, topology)
        mine, theirs = names_of(kept, indices), names_of(topology, reference_indices)
        assert len(mine) == sum(1 for atom in kept.atoms() if atom.name == "CA")
        right = [
            a[0] == b[0] and int(a[1]) == int(b[1]) + 7 and a[2] == b[2] == "CA" for a, b in zip(mine, theirs)
        ]
        # Next to a gap the sequence alone may leave open on which side a residue belongs.
        assert np.mean(right) > 0.97

    def test_chains_in_another_order_are_paired_by_sequence(self, data_dir):
        topology = read_model(data_dir / "emd3488_5ni1" / "5me2.pdb").topology
        ids = list(dict.fromkeys(chain.id for chain in topology.chains()))
        swapped = app.Topology()
        for number, wanted in enumerate((ids[1], ids[0])):
            chain = swapped.addChain("XY"[number])
            for residue in (r for r in topology.residues() if r.chain.id == wanted):
                new = swapped.addResidue(residue.name, chain, residue.id)
                for atom in residue.atoms():
                    swapped.addAtom(atom.name, atom.element, new)
        indices, reference_indices = match_alpha_carbons(swapped, topology)
        atoms, reference_atoms = list(swapped.atoms()), list(topology.atoms())
        names = {
            (atoms[i].residue.name == reference_atoms[j].residue.name)
            for i, j in zip(indices, reference_indices)
        }
        assert names == {True} and len(indices) > 250

    def test_copies_with_other_ids_are_told_apart_by_their_places(self, data_dir):
        folder = data_dir / "emd3488_5ni1"
        first, second = (
            read_model(folder / name) for name in ("modelangelo_5ni1_inframe.cif", "5ni1_updated.cif")
        )
        blind = match_alpha_carbons(first.topology, second.topology)
        assert ca_rmsd(first.positions, second.positions, blind) > 20
        seeing = match_alpha_carbons(
            first.topology, second.topology, positions=first.positions, reference_positions=second.positions
        )
        assert len(seeing[0]) == len(blind[0])
        assert ca_rmsd(first.positions, second.positions, seeing) < 1

    def test_copies_in_another_order_are_told_apart_by_their_places(self, kinesin_path):
        model = read_model(kinesin_path)
        n, shift = len(model.positions), np.array([60.0, 0, 0])
        nowhere = np.zeros((n, 3)) * unit.nanometer
        topologies = []
        for ids in ("AB", "YZ"):
            double = app.Modeller(renumbered(model.topology, chain=ids[0]), nowhere)
            double.add(renumbered(model.topology, chain=ids[1]), nowhere)
            topologies.append(double.topology)
        positions = np.concatenate([model.positions, model.positions + shift])
        reference = np.concatenate([model.positions + shift, model.positions]) + np.array([0, 2.0, 0])
        pairs = match_alpha_carbons(*topologies, positions=positions, reference_positions=reference)
        assert ca_rmsd(positions, reference, pairs) == pytest.approx(2.0)
        assert ca_rmsd(positions, reference, match_alpha_carbons(*topologies)) == pytest.approx(
            np.hypot(60, 2), abs=0.1
        )

    def test_a_model_without_its_sequence_is_paired_by_number(self, kinesin_path):
        topology = read_model(kinesin_path).topology
        alanines = renumbered(topology, names="ALA")
        indices, reference_indices = match_alpha_carbons(alanines, topology)
        assert np.array_equal(indices, reference_indices)
        assert len(indices) == sum(1 for atom in topology.atoms() if atom.name == "CA")

    def test_force_field_names_are_the_same_residues(self):
        topologies = []
        for names, offset in (
            (["HIS", "CYS", "ASP", "GLU", "LYS", "MET"], 0),
            (["HIE", "CYX", "ASH", "GLH", "LYN", "MSE"], 40),
        ):
            topology = app.Topology()
            chain = topology.addChain("A")
            for number, name in enumerate(names):
                residue = topology.addResidue(name, chain, str(number + offset))
                topology.addAtom("CA", app.element.carbon, residue)
            topologies.append(topology)
        indices, reference_indices = match_alpha_carbons(*topologies)
        assert indices.tolist() == reference_indices.tolist() == list(range(6))

    def test_copies_without_chain_ids_are_told_apart(self, kinesin_path):
        single = renumbered(read_model(kinesin_path).topology, chain="")
        double = app.Modeller(single, np.zeros((single.getNumAtoms(), 3)) * unit.nanometer)
        double.add(single, np.zeros((single.getNumAtoms(), 3)) * unit.nanometer)
        indices, reference_indices = match_alpha_carbons(double.topology, double.topology)
        assert np.array_equal(indices, reference_indices)
        assert len(indices) == 2 * sum(1 for atom in single.atoms() if atom.name == "CA")

    def test_copies_are_told_apart_between_chains_of_other_ids(self):
        topologies = []
        for ids in ("ABA", "AAB"):
            topology = app.Topology()
            for chain in map(topology.addChain, ids):
                for number in range(4):
                    residue = topology.addResidue("SER" if chain.id == "A" else "TRP", chain, str(number))
                    topology.addAtom("CA", app.element.carbon, residue)
            topologies.append(topology)
        indices, reference_indices = match_alpha_carbons(*topologies)
        assert indices.tolist() == list(range(12))
        assert reference_indices.tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7]

    def test_insertion_codes_tell_residues_apart_also_where_mdtraj_has_lost_them(self):
        topology = app.Topology()
        chain = topology.addChain("A")
        for name, number, code in zip(
            ("HIS", "GLY", "TRP", "SER", "PHE", "LYS"), "556678", ("", "A", "", "B", "", "")
        ):
            residue = topology.addResidue(name, chain, number, code)
            topology.addAtom("CA", app.element.carbon, residue)
        without = parts(topology, lambda residue: residue.name != "HIS")
        indices, reference_indices = match_alpha_carbons(without, topology)
        assert reference_indices.tolist() == [1, 2, 3, 4, 5]
        indices, reference_indices = match_alpha_carbons(mdtraj.Topology.from_openmm(topology), topology)
        assert indices.tolist() == reference_indices.tolist() == [0, 2, 4, 5]

    def test_nucleotides_are_paired_by_phosphorus_else_by_c1(self):
        topologies = []
        for first_has_phosphorus in (False, True):
            topology = app.Topology()
            chain = topology.addChain("R")
            for number, name in enumerate(("A", "C", "G", "DT")):
                residue = topology.addResidue(name, chain, str(number))
                if number or first_has_phosphorus:
                    topology.addAtom("P", app.element.phosphorus, residue)
                topology.addAtom("C1'", app.element.carbon, residue)
            topologies.append(topology)
        pairs = match_alpha_carbons(*topologies)
        for topology, indices in zip(topologies, pairs):
            assert [name for _, _, name in names_of(topology, indices)] == ["C1'", "P", "P", "P"]

    def test_calcium_is_no_alpha_carbon(self, kinesin_path):
        topology = read_model(kinesin_path).topology
        with_calcium = app.Topology()
        chain = with_calcium.addChain("A")
        for number in range(1, 400):
            residue = with_calcium.addResidue("CA", chain, str(number))
            with_calcium.addAtom("CA", app.element.calcium, residue)
        with pytest.raises(InputError, match="have 0 and 323 residues"):
            match_alpha_carbons(with_calcium, topology)

    def test_mdtraj_topologies_give_the_same_pairs(self, kinesin, data_dir, kinesin_path):
        reference = data_dir / "emd6187_kinesin" / "chain_K_box_complete.pdb"
        expected = match_alpha_carbons(read_model(kinesin_path).topology, read_model(reference).topology)
        found = match_alpha_carbons(kinesin.topology, load_trajectory(reference).topology)
        assert all(np.array_equal(a, b) for a, b in zip(found, expected))

    def test_unrelated_proteins_are_refused(self, data_dir, kinesin):
        others = ("pair_adk/adk_open.pdb", "emd3488_5ni1/5me2.pdb", "emd6374_frag/6374_native.pdb")
        for other in others:
            with pytest.raises(InputError, match="at least 3 are needed"):
                match_alpha_carbons(read_model(data_dir / other).topology, kinesin.topology)

    def test_rmsd_takes_units_and_does_not_superpose(self):
        positions = np.array([[0, 0, 0], [9, 9, 9], [1, 0, 0]], dtype=float)
        pairs = (np.array([0, 2]), np.array([0, 1]))
        reference = np.array([[3, 0, 0], [1, 4, 0]], dtype=float)
        assert ca_rmsd(positions, reference, pairs) == pytest.approx(np.sqrt((9 + 16) / 2))
        in_nanometers = (reference / 10) * unit.nanometer
        assert ca_rmsd(positions, in_nanometers, pairs) == pytest.approx(np.sqrt((9 + 16) / 2))
