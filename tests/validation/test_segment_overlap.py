"""SMOC against its formula summed voxel by voxel, and TEMPy's values."""

import gemmi
import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.models.structures import read_model
from openmm_density.validation.segment_overlap import segment_overlap


def by_formula(model, density_map, resolution, window):
    """Return the coefficients of all residues from the distances of all voxels to all atoms."""
    sigma = 0.225 * resolution
    grid = np.indices(density_map.shape).reshape(3, -1)[::-1].T @ density_map.matrix.T + density_map.origin
    atoms = list(model.topology.atoms())
    square = np.stack([((grid - place) ** 2).sum(axis=1) for place in model.positions])
    masses = np.array([atom.element.mass._value for atom in atoms])
    inside = np.where(square <= (4 * sigma) ** 2, np.exp(-0.5 * square / sigma**2), 0)
    calculated, observed = masses @ inside, density_map.data.reshape(-1).astype(float)
    near = square <= (2.5 * max(sigma, 1)) ** 2
    residues = np.array([atom.residue.index for atom in atoms])
    scores = []
    for middle in range(model.topology.getNumResidues()):
        voxels = near[np.abs(residues - middle) <= window // 2].any(axis=0)
        a, b = observed[voxels], calculated[voxels]
        scores.append(a @ b / np.sqrt((a @ a) * (b @ b)))
    return np.array(scores)


def test_it_is_the_formula_in_windows_and_at_the_ends(map5925, emd5925, tmp_path):
    short = gemmi.read_structure(str(emd5925.path))
    del short[0][0][16:]
    short.write_pdb(str(tmp_path / "short.pdb"))
    model = read_model(tmp_path / "short.pdb")
    density_map = map5925.crop(model.positions, 4.0)
    for window in (11, 1):
        found = segment_overlap(density_map, model.topology, model.positions, 3.64, window=window)
        np.testing.assert_allclose(found, by_formula(model, density_map, 3.64, window), rtol=1e-5)


def test_it_is_near_that_of_tempy(map5925, emd5925):
    found = segment_overlap(map5925, emd5925.topology, emd5925.positions, 3.64)
    # FastSMOC of BioTEMPy 2.1.2, its simulated map neither shifted nor scaled: 0.834, and at most 0.013 away for a residue.
    assert np.mean(found) == pytest.approx(0.834, abs=0.005)


def test_chains_ligands_and_what_is_elsewhere(small_data, haemoglobin):
    density_map = DensityMap.from_file(small_data / "emd3488_5ni1" / "emd_3488.mrc")
    found = segment_overlap(density_map, haemoglobin.topology, haemoglobin.positions, 3.2)
    residues = list(haemoglobin.topology.residues())
    heme = [residue.index for residue in residues if residue.name == "HEM"]
    assert len(heme) == 4 and np.isnan(found[heme]).all()
    # Two chains are in the map; a window does not reach from one into the next.
    assert np.isfinite(found[[r.index for r in residues if r.chain.id == "A" and r.name == "LYS"]]).all()
    alone = segment_overlap(density_map, haemoglobin.topology, haemoglobin.positions, 3.2, window=1)
    last = max(r.index for r in residues if r.chain.id == "A" and np.isfinite(found[r.index]))
    assert found[last] != alone[last]
    away = segment_overlap(density_map, haemoglobin.topology, haemoglobin.positions + 900, 3.2)
    assert np.isnan(away).all()
