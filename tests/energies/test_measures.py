import re

import pytest

from openmm_density import InputError
from openmm_density.energies.measures import MEASURES, SIMILARITIES, measure_named
from openmm_density.kernels.density import measures

from ..conftest import PROJECT


def test_every_measure_has_a_number_of_its_own_in_the_kernels():
    numbers = [measure.number for measure in MEASURES if not measure.is_potential]
    assert sorted(numbers) == sorted(measures.NUMBERS)


def test_a_measure_is_found_by_its_name_and_variant():
    for measure in MEASURES:
        assert measure_named(measure.name, about_mean=measure.about_mean) is measure
    assert len({(measure.name, measure.about_mean) for measure in MEASURES}) == len(MEASURES)


def test_what_there_is_no_measure_of_is_refused():
    with pytest.raises(InputError, match=f'"pearson".*{", ".join(SIMILARITIES)}'):
        measure_named("pearson")
    with pytest.raises(InputError, match=r'about_mean.*"cross-correlation".*"least-squares"'):
        measure_named("least-squares", about_mean=True)


def test_the_similarity_follows_from_the_energy():
    bounded, unbounded = measure_named("cross-correlation"), measure_named("inner-product")
    assert bounded.similarity_from_energy(300.0, 1000.0) == pytest.approx(0.7)
    assert unbounded.similarity_from_energy(-300.0, 1000.0) == pytest.approx(0.3)


def test_the_guide_gives_each_measure_its_energy():
    text = (PROJECT / "docs" / "guide" / "similarities.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]+) \|$", text, flags=re.MULTILINE))
    assert len(rows) >= 5
    assert rows.items() <= {measure.name: measure.energy for measure in MEASURES}.items()
