"""Structure factors of one unit on a periodic grid, in crystals of several symmetries, and the adjoint."""

import gemmi
import numpy as np
import pytest
import torch

from openmm_density.energies.form_factors import form_factor_gaussians
from openmm_density.extensions.crystal_fit.amplitude_likelihood import UnitCellGrid
from openmm_density.kernels.density import density_splat

from ..crystals.simulated import direct_structure_factors

ATOMS = np.array([[1.0, 2.0, 3.0], [7.5, 4.2, 11.0], [4.1, 9.3, 6.6]]), [8.0, 20.0, 35.0], ["C", "O", "S"]
CRYSTALS = {
    "P 1": (13.0, 15.0, 17.0, 80, 95, 105),
    "P 1 21 1": (13.0, 15.0, 17.0, 90, 101, 90),
    "P 21 21 21": (13.0, 15.0, 17.0, 90, 90, 90),
    "C 1 2 1": (19.0, 15.0, 17.0, 90, 101, 90),
    "P 31 2 1": (21.0, 21.0, 19.0, 90, 90, 120),
}


@pytest.mark.parametrize("group", CRYSTALS)
def test_structure_factors_are_those_of_a_direct_sum(group):
    cell, space_group = gemmi.UnitCell(*CRYSTALS[group]), gemmi.SpaceGroup(group)
    positions, b_factors, elements = ATOMS
    structure = gemmi.Structure()
    structure.cell, structure.spacegroup_hm = cell, group
    structure.add_model(gemmi.Model(1))
    chain, residue = gemmi.Chain("A"), gemmi.Residue()
    for position, b_factor, element in zip(positions, b_factors, elements):
        atom = gemmi.Atom()
        atom.name, atom.element = element, gemmi.Element(element)
        atom.pos, atom.b_iso = gemmi.Position(*position), b_factor
        residue.add_atom(atom)
    chain.add_residue(residue)
    structure[0].add_chain(chain)
    structure.setup_cell_images()
    hkl = gemmi.make_miller_array(cell, space_group, 1.6)
    hkl = hkl[~space_group.operations().systematic_absences(hkl)][::7]
    grid = UnitCellGrid(cell, space_group, hkl, 1.6)
    b_tensor = torch.tensor(b_factors) + grid.blur
    gaussians = form_factor_gaussians(elements, "xray", b_tensor, torch.ones(3), 0.0)
    place = torch.from_numpy(grid.matrix), torch.zeros(3, dtype=torch.float64), list(grid.shape), True
    splat = density_splat(torch.from_numpy(positions), *(each.float() for each in gaussians), 6.0, *place)
    expected = direct_structure_factors(structure, hkl)
    found = grid.structure_factors(splat.numpy())
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()
    # Re Σ conj(g)·F is linear in the density: its derivative by each voxel is the field.
    rng = np.random.default_rng(1)
    given = rng.normal(size=(2, len(hkl)))
    given = given[0] + 1j * given[1]
    density = rng.normal(size=grid.shape)
    assert (grid.field(given) * density).sum() == pytest.approx(
        (given.conj() * grid.structure_factors(density)).real.sum(), rel=1e-4
    )
