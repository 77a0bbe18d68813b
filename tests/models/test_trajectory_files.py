"""Trajectories and models that are read as trajectories."""

from __future__ import annotations

import gzip
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import gemmi
import mdtraj
import numpy as np
import pytest

from openmm_density.base.errors import InputError
from openmm_density.models import read_model
from openmm_density.models.trajectory_files import load_trajectory

from ..small_models import ADK_OPEN, moving


def test_model_is_that_of_read_model(kinesin, kinesin_path):
    model = read_model(kinesin_path)
    assert kinesin.n_frames == 1 and np.isnan(kinesin.time).all()
    assert np.abs(kinesin.xyz[0] * 10 - model.positions).max() < 1e-4
    assert [a.name for a in kinesin.topology.atoms] == [a.name for a in model.topology.atoms()]
    assert np.allclose(kinesin.unitcell_lengths[0] * 10, model.cell[:3])


def test_cif_and_gzipped_models_are_read(small_data, kinesin, kinesin_path, tmp_path):
    packed = tmp_path / "model.pdb.gz"
    packed.write_bytes(gzip.compress(kinesin_path.read_bytes()))
    assert np.array_equal(load_trajectory(packed).xyz, kinesin.xyz)
    cif = small_data / "emd3488_5ni1" / "5ni1_updated.cif"
    assert load_trajectory(cif).n_atoms == len(read_model(cif).positions)


@pytest.mark.parametrize("suffix", [".dcd", ".xtc", ".trr", ".nc"])
def test_trajectory_with_a_model_as_topology(kinesin, kinesin_path, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    moving(kinesin, 3).save(str(path))
    loaded = load_trajectory(path, kinesin_path)
    assert loaded.n_frames == 3
    assert np.abs(loaded.xyz - moving(kinesin, 3).xyz).max() < 6e-4
    assert np.isnan(loaded.time).all() if suffix == ".dcd" else loaded.time.tolist() == [0, 1, 2]
    assert loaded.topology.residue(0).chain.chain_id == "A"


def test_every_model_of_a_file_is_a_frame(kinesin, kinesin_path, tmp_path):
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


def test_further_models_follow_the_kept_conformers(tmp_path):
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


def test_models_of_different_atoms_are_refused(kinesin_path, tmp_path):
    structure = gemmi.read_structure(str(kinesin_path))
    second = structure[0].clone()
    second.num = 2
    del second[0][0]
    structure.add_model(second)
    path = tmp_path / "two.pdb"
    structure.write_pdb(str(path))
    with pytest.raises(InputError, match="model 2 has other atoms"):
        load_trajectory(path)


def test_trajectory_without_topology(kinesin, tmp_path):
    path = tmp_path / "run.dcd"
    kinesin.save(str(path))
    with pytest.raises(InputError, match=r"run\.dcd: .*topology_path=\"model\.pdb\""):
        load_trajectory(path)


@pytest.mark.parametrize("suffix", [".dcd", ".xtc", ".nc", ".pdb"])
def test_numbers_of_atoms_that_differ(kinesin, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    kinesin.save(str(path))
    with pytest.raises(InputError, match=rf"has {kinesin.n_atoms} atoms .* has 1656"):
        load_trajectory(path, ADK_OPEN)


@pytest.mark.parametrize("suffix", [".dcd", ".xtc", ".trr", ".nc", ".xyz", ".gro", ".rst7"])
def test_damaged_files(kinesin_path, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    path.write_text("this is no trajectory\n" * 20)
    with pytest.raises(InputError, match=rf"run\{suffix}: cannot be read as a \{suffix} trajectory"):
        load_trajectory(path, kinesin_path)


@pytest.mark.parametrize("suffix", [".dcd", ".xtc"])
def test_missing_files(kinesin_path, tmp_path, suffix):
    with pytest.raises(InputError, match="there is no such file"):
        load_trajectory(tmp_path / f"none{suffix}", kinesin_path)
    existing = tmp_path / f"run{suffix}"
    existing.touch()
    for topology in ("none.pdb", "none.prmtop"):
        with pytest.raises(InputError, match=rf"{topology}: there is no such file"):
            load_trajectory(existing, tmp_path / topology)


class Evil:
    """What runs code where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_what_is_pickled_in_a_file_is_not_unpickled(tmp_path, monkeypatch):
    """As PyTables does it, which the formats .h5 and .lh5 need."""
    ran, path = tmp_path / "ran", tmp_path / "evil.h5"
    path.touch()
    modules = {name: ModuleType(f"tables.{name}") for name in ("atom", "attributeset")}
    tables = ModuleType("tables")
    for name, module in {"": tables, **modules}.items():
        module.pickle = pickle
        monkeypatch.setitem(sys.modules, f"tables.{name}".rstrip("."), module)
        if name:
            setattr(tables, name, module)
    found = []

    def load(*_):
        for module in modules.values():
            with pytest.raises(pickle.UnpicklingError):
                module.pickle.loads(pickle.dumps(Evil(ran)))
            assert module.pickle.dumps(1) == pickle.dumps(1)
        # Other threads read files of their own.
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(modules["atom"].pickle.loads, pickle.dumps("text")).result())
        raise ValueError("no trajectory")

    monkeypatch.setattr(mdtraj, "load", load)
    with pytest.raises(InputError, match="no trajectory"):
        load_trajectory(path)
    assert found == ["text"] and not ran.exists()
    assert all(module.pickle is pickle for module in modules.values())


def test_a_pickle_in_an_hdf5_file_is_not_unpickled(tmp_path):
    tables = pytest.importorskip("tables", reason="PyTables is not installed")
    trajectory = mdtraj.load(str(ADK_OPEN)).atom_slice(range(20))
    trajectory.save_hdf5(str(tmp_path / "evil.h5"))
    ran = tmp_path / "ran"
    with tables.open_file(str(tmp_path / "evil.h5"), "a") as file:
        file.root._v_attrs.application = Evil(ran)
    assert load_trajectory(tmp_path / "evil.h5").n_atoms == 20
    assert not ran.exists()


def test_unknown_formats(tmp_path):
    for name in ("run.docx", "run"):
        (tmp_path / name).write_text("neither\n")
        with pytest.raises(InputError, match="the ending is neither"):
            load_trajectory(tmp_path / name)
    (tmp_path / "run.dcd").touch()
    with pytest.raises(InputError, match="not that of a topology"):
        load_trajectory(tmp_path / "run.dcd", tmp_path / "run.docx")
