"""Densities of wider atoms, found in a thread."""

import gc
import threading
from types import SimpleNamespace

from openmm_density.fitting.widths import DensityWidths


def test_what_an_interrupted_fit_has_not_begun_is_not_found():
    begun, goes_on, found = threading.Event(), threading.Event(), []

    def wider(width):
        begun.set()
        goes_on.wait()
        found.append(width)

    widths = DensityWidths(SimpleNamespace(resolution=3.0, with_atoms_wider=wider), 3.0 * 1.35)
    widths.begin()
    (first, *others) = widths._begun.values()
    begun.wait()
    del widths
    gc.collect()
    goes_on.set()
    first.result()
    assert found == [1.1] and len(others) == 2 and all(each.cancelled() for each in others)
