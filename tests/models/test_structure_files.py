from __future__ import annotations

import os
from pathlib import Path

import mdtraj
import numpy as np
import pytest
from openmm import app, unit

from openmm_density.errors import InputError
from openmm_density.models import prepare, read_model
from openmm_density.models.structure_files import pdb_limit, write_cif, write_pdb

from ..small_models import FRAGMENT, bonds_between_residues

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
