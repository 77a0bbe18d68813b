"""The map of a fit, and what correlates models with it."""

import weakref

import numpy as np
import pytest

from openmm_density import DensityMap
from openmm_density.fitting.fit_map import FitMap
from openmm_density.maps.corrections import MapCorrections
from openmm_density.models import read_model
from openmm_density.validation.correlation import MapCorrelation, cc_mask


def test_a_correlation_is_built_once_for_each_model(fitted, monkeypatch):
    fit, _ = fitted
    built = []
    build = MapCorrelation.__init__
    monkeypatch.setattr(
        MapCorrelation, "__init__", lambda self, *given: built.append(given) or build(self, *given)
    )
    fit_map = FitMap(fit.density_map, fit.fit_map.resolution)
    for model in (fit.solute.model, fit.solute.model, fit.prepared, fit.solute.model):
        found = fit_map.correlation(model.topology).cc_mask(model.positions)
    assert len(built) == 2
    coarser = [fit_map.correlation(model.topology, 6.0) for _ in range(2)]
    assert len(built) == 3 and coarser[0] is coarser[1]
    assert found == cc_mask(fit.density_map, model.topology, model.positions, fit_map.resolution)


def test_a_corrected_map_takes_the_place_of_the_one_that_was_read(fitted):
    read = fitted[0].density_map
    copy = DensityMap(read.data.copy(), read.matrix, read.origin, read.periodic)
    held = weakref.ref(copy)
    fit_map = FitMap(copy, 5.0, MapCorrections(invert=True))
    assert np.array_equal(fit_map.density_map.data, -read.data)
    del copy
    assert held() is None
    assert FitMap(read, 5.0).density_map is read


def test_a_point_is_carried_along_with_its_voxel(fitted):
    read = fitted[0].density_map
    wider = FitMap(read, 5.0, MapCorrections(voxel_size=tuple(1.1 * read.voxel_size)))
    voxel = np.array([3.0, 5.5, 7.25])
    there, here = (each.origin + each.matrix @ voxel for each in (wider.density_map, read))
    assert wider.carried_along(here) == pytest.approx(there)
    assert FitMap(read, 5.0).carried_along(here) == pytest.approx(here)


def test_a_correlation_is_built_once_for_each_topology_and_resolution(small_data):
    folder = small_data / "emd6187_kinesin"
    model = read_model(folder / "1bg2_K_fitted.pdb")
    fit_map = FitMap(DensityMap.from_file(folder / "chain_K_box.ccp4"), 5.0)
    own, coarser = (fit_map.correlation(model.topology, resolution) for resolution in (None, 6.0))
    assert fit_map.correlation(model.topology, 5.0) is own is not coarser
    assert coarser.cc_mask(model.positions) == MapCorrelation(
        fit_map.density_map, model.topology, 6.0
    ).cc_mask(model.positions)
