"""What a fit is refused for before it begins."""

from pathlib import Path

import numpy as np
import pytest
from openmm import app

from openmm_density import DensityMap
from openmm_density.base.errors import InputError
from openmm_density.fitting.checks import check_arguments, check_pressures, check_resolutions, check_start
from openmm_density.fitting.fit_map import FitMap
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.models import Model


def model_of(*residues):
    topology = app.Topology()
    chain = topology.addChain("A")
    for name, atoms in residues:
        residue = topology.addResidue(name, chain)
        for atom, element in atoms:
            topology.addAtom(atom, element, residue)
    size = topology.getNumAtoms()
    return Model(Path("some.pdb"), topology, np.zeros((size, 3)), np.zeros(size), np.ones(size), ())


WATER = ("HOH", [("O", app.element.oxygen)])
ION = ("MG", [("MG", app.element.magnesium)])
GLYCINE = ("GLY", [(name, app.element.carbon) for name in ("CA", "C")])


def test_models_and_maps_are_read_before_they_are_fitted():
    model, density_map = (
        model_of(GLYCINE),
        DensityMap(np.zeros((4, 4, 4), dtype=np.float32), np.eye(3), np.zeros(3)),
    )
    check_arguments(FlexibleFit, ["weights", "mask"], density_map, model=model, reference=None)
    for name in ("model", "reference"):
        wrong = {"model": model, name: "some.pdb"}
        with pytest.raises(
            InputError, match=rf"^{name} must be a Model, found a str: read one with .*read_model"
        ):
            check_arguments(FlexibleFit, [], density_map, **wrong)
    with pytest.raises(InputError, match=r"^density_map must be a DensityMap, found str: read one with"):
        check_arguments(FlexibleFit, [], "map.mrc", model=model)
    with pytest.raises(TypeError, match=r"^FlexibleFit has no argument refrence: did you mean reference\?$"):
        check_arguments(FlexibleFit, ["refrence"], density_map, model=model)
    with pytest.raises(TypeError, match=r"^FlexibleFit has no argument system"):  # it makes its own
        check_arguments(FlexibleFit, ["system"], density_map, model=model)


def test_a_start_is_a_molecule_in_a_map_that_can_hold_its_resolution():
    density_map = DensityMap(np.zeros((20, 20, 20), dtype=np.float32), np.diag([1.5, 1.5, 1.5]), np.zeros(3))
    molecule = model_of(GLYCINE, WATER)
    check_start(molecule, FitMap(density_map, 5.0))
    with pytest.raises(InputError, match=r"some\.pdb: it holds only water and ions"):
        check_start(model_of(WATER, ION), FitMap(density_map, 5.0))
    nowhere = model_of(GLYCINE)
    nowhere.positions[1, 2] = np.nan
    with pytest.raises(InputError, match=r"positions must be finite, found NaN.*GLY \d+ C\)"):
        check_start(nowhere, FitMap(density_map, 5.0))
    with pytest.raises(
        InputError,
        match=r"resolution must not be finer than the map's voxels of 1.50 Å, found 1: .*3.0 Å at best",
    ):
        check_start(molecule, FitMap(density_map, 1.0))
    with pytest.raises(
        InputError, match="resolution must not be coarser than the map is wide, 30 Å, found 40"
    ):
        check_start(molecule, FitMap(density_map, 40.0))


def test_stages_ask_for_what_map_and_box_allow():
    protocol = Protocol((Stage("settle", 40, 0.0, pressure=1.0, restraints=("position",)),))
    check_pressures(protocol, "water")
    with pytest.raises(InputError, match="needs a box of water"):
        check_pressures(protocol, "obc")
    protocol = Protocol((Stage("coarse", 40, resolution=8.0), Stage("own", 40)))
    density_map = DensityMap(np.zeros((20, 20, 20), dtype=np.float32), np.diag([1.5, 1.5, 1.5]), np.zeros(3))
    check_resolutions(protocol, FitMap(density_map, 8.0))
    with pytest.raises(
        InputError, match=r'stage "coarse": its resolution must be between .* 9 Å, .* 30 Å, found 8 Å: give'
    ):
        check_resolutions(protocol, FitMap(density_map, 9.0))
    wide = Protocol((Stage("coarse", 40, resolution=31.0),))
    with pytest.raises(InputError, match=r"between .* 8 Å, .* 30 Å, found 31 Å: give"):
        check_resolutions(wide, FitMap(density_map, 8.0))
