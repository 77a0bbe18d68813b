"""Numbers that a run is given."""

import pytest

from openmm_density.base.errors import InputError
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.fitting.run_numbers import checked_interval


def test_intervals_are_whole_multiples_and_no_longer_than_the_fit():
    protocol = Protocol((Stage("hold", 40),), density_interval=4)
    assert checked_interval("report_interval", 20, protocol) == 20
    assert checked_interval("report_interval", 4000, protocol) == 40
    with pytest.raises(InputError, match="report_interval must be at least 1 step, found 0"):
        checked_interval("report_interval", 0, protocol)
    with pytest.raises(
        InputError, match="report_interval must be a multiple of density_interval, which is 4"
    ):
        checked_interval("report_interval", 10, protocol)
