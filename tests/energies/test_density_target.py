import numpy as np
import pytest

from openmm_density import DensityMap, InputError
from openmm_density.energies.density_target import DensityTarget, TargetSource
from openmm_density.energies.measures import measure_named

CORRELATION = measure_named("cross-correlation")


@pytest.fixture(scope="module")
def density_map(kinase):
    return DensityMap.simulate(kinase.topology, kinase.positions, 5.0, 1.3, margin=12.0)


def source_of(density_map, kinase, measure=CORRELATION, **options):
    return TargetSource(density_map, measure, around=kinase.positions[:100], **options)


def test_a_wider_cutoff_keeps_more_of_the_map(density_map, kinase):
    source = source_of(density_map, kinase, crop_margin=2.0)
    near, far = source.target(5.0, 3.0), source.target(5.0, 8.0)
    assert near.cropped and far.cropped
    assert (far.map.size > near.map.size).any() and (far.map.size >= near.map.size).all()


def test_the_potential_is_scaled_and_what_does_not_count_is_none(density_map):
    data = density_map.data
    threshold, top = float(data.mean()), float(data.max())
    potential = DensityTarget(density_map).potential(threshold).numpy()
    assert potential.min() == 0 and potential.max() == 1
    assert not potential[data <= threshold].any()
    between = data > threshold
    np.testing.assert_allclose(
        potential[between], (data[between] - threshold) / (top - threshold), rtol=1e-4, atol=1e-6
    )
    counted = data < 0.5 * top
    masked = DensityTarget(density_map, counted)
    assert not masked.potential(threshold).numpy()[~counted].any()
    voxels = masked.voxels().numpy()
    assert np.isnan(voxels[~counted]).all() and np.array_equal(voxels[counted], data[counted])
    with pytest.raises(InputError, match="threshold"):
        masked.potential(top)


def test_a_potential_takes_the_map_as_it_is(density_map, kinase):
    source = source_of(density_map, kinase, measure_named("map-potential"), crop_margin=2.0)
    target = source.target(12.0, 3.0)
    assert target.cropped and not target.resampled
    with pytest.raises(InputError, match="takes the map as it is"):
        source_of(density_map, kinase, measure_named("map-potential"), voxel_size=1.0)
