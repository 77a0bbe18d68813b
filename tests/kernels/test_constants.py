"""Constants and slots that Python, C++ and Triton share have the same names and values in each."""

import re
from enum import IntEnum
from pathlib import Path

import pytest

from openmm_density.energies.measures import MEASURES as TABLE
from openmm_density.kernels import density, planarity
from openmm_density.kernels.density import measures, reference
from openmm_density.models.chemistry.planes import plane_set

DENSITY, PLANARITY = (Path(module.__file__).parent for module in (density, planarity))
CONSTANTS = ("ENTROPY_FLOOR", "UNIFORM_VARIANCE", "UNIFORM_TARGET", "SMALLEST_SHIFTED")
MEASURES = tuple(measure.constant for measure in TABLE if not measure.is_potential)


def enumerators(header: Path, name: str) -> dict[str, int]:
    """Return the names and values of a C++ enumeration."""
    (body,) = re.findall(rf"enum {name} {{(.*?)}};", header.read_text(), flags=re.DOTALL)
    values, following = {}, 0
    for entry in re.sub(r"//.*", "", body).split(","):
        given, _, value = (part.strip() for part in entry.partition("="))
        following = values[value] if value in values else int(value or following)
        values[given] = following
        following += 1
    return values


def constant(source: Path, name: str) -> float:
    """Return a C++ constant."""
    (value,) = re.findall(rf"constexpr \w+ {name} = ([-+.e\d]+)f?;", source.read_text())
    return float(value)


def slots(enumeration: type[IntEnum], prefix: str) -> dict[str, int]:
    return {f"{prefix}_{name}": int(slot) for name, slot in enumeration.__members__.items()}


def test_the_c_plus_plus_measures_are_those_of_python():
    header = DENSITY / "measures.h"
    numbers = {name: getattr(measures, name) for name in MEASURES}
    assert enumerators(header, "Measure") == numbers | {"MEASURES": len(MEASURES)}
    moments, sums = slots(measures.Moment, "MOMENT"), slots(measures.Sum, "SUM")
    assert enumerators(header, "Moment") == moments | {"MOMENTS": len(moments)}
    assert enumerators(DENSITY / "tiles.h", "Sum") == sums | {"SUMS": len(measures.Sum)}
    channels = slots(measures.Coefficient, "CHANNEL")
    assert enumerators(header, "Channel") == channels | {"CHANNEL_SINGLE": 0}
    for name in CONSTANTS:
        assert constant(header, name) == getattr(measures, name)


def test_every_measure_has_a_name_and_a_number():
    assert (
        measures.NUMBERS == tuple(range(len(MEASURES))) == tuple(getattr(measures, name) for name in MEASURES)
    )
    assert density.ENTROPY_FLOOR == measures.ENTROPY_FLOOR
    divided = [measure.number for measure in TABLE if measure.divides_by_weight and not measure.is_potential]
    assert sorted(divided) == sorted(measures.DIVIDED_BY_WEIGHT)


def test_the_triton_measures_are_those_of_python():
    gpu_measures = pytest.importorskip("openmm_density.kernels.density.gpu_measures")
    shared = slots(measures.Moment, "MOMENT") | slots(measures.Sum, "SUM")
    shared |= slots(measures.Coefficient, "COEFFICIENT") | {
        name: getattr(measures, name) for name in CONSTANTS
    }
    for name, value in shared.items():
        assert getattr(gpu_measures, name).value == value, name
    for name in MEASURES:
        # The kernels need no name for the one that is what all others are not.
        assert getattr(gpu_measures, name, None) is None or getattr(gpu_measures, name).value == getattr(
            measures, name
        )


def test_slots_of_the_geometry_are_each_of_one_number():
    gpu_geometry = pytest.importorskip("openmm_density.kernels.density.gpu_geometry")
    axes = "XYZ"
    names = [f"REACH_{a}" for a in axes]
    names += [f"U_{a}{b}" for i, a in enumerate(axes) for b in axes[i:]]
    names += [f"MATRIX_{a}{b}" for a in axes for b in axes]
    assert [getattr(gpu_geometry, name).value for name in names] == list(range(gpu_geometry.GEOMETRY_SLOTS))


def test_the_kernels_take_as_many_gaussians():
    assert constant(DENSITY / "interface.h", "MAX_GAUSSIANS") == reference.MAX_GAUSSIANS


def test_planes_are_judged_by_the_same_limits_everywhere():
    assert plane_set.SMALLEST_PLANE == planarity.SMALLEST_PLANE
    assert constant(PLANARITY / "planes.h", "SMALLEST_PLANE") == planarity.SMALLEST_PLANE
    assert constant(PLANARITY / "planes.h", "COLLINEARITY_LIMIT") == planarity.COLLINEARITY_LIMIT
    gpu = pytest.importorskip("openmm_density.kernels.planarity.gpu")
    assert gpu.COLLINEARITY_LIMIT.value == planarity.COLLINEARITY_LIMIT
