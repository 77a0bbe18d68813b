"""Fits that share a GPU: by NVIDIA's Multi-Process Service, unless told otherwise."""

from contextlib import contextmanager

import pytest

from openmm_density.cli import build_parser
from openmm_density.extensions.batch import batch
from openmm_density.extensions.batch.command_arguments import fit_words
from openmm_density.extensions.batch.devices import MachineShare

SHARED, ALONE = {"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "3"}


@pytest.fixture
def started(monkeypatch):
    """Return what is started and ended, in order."""
    events = []

    @contextmanager
    def service(gpu, say):
        events.append(f"service for {gpu}")
        yield {"CUDA_VISIBLE_DEVICES": "0", "CUDA_MPS_PIPE_DIRECTORY": f"pipes of {gpu}"}
        events.append("service ended")

    monkeypatch.setattr(batch, "shared_gpu", service)
    monkeypatch.setattr(batch, "ThisMachine", lambda places: [*places])
    return events


def test_each_gpu_with_several_fits_has_a_service_as_long_as_they_run(started):
    with batch.local(MachineShare([SHARED, ALONE, SHARED], 2)) as places:
        through = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_MPS_PIPE_DIRECTORY": "pipes of 2"}
        assert places == [through, ALONE, through] and started == ["service for 2"]
    assert started == ["service for 2", "service ended"]


@pytest.mark.parametrize(("mps", "places"), [("off", [SHARED] * 2), ("auto", [ALONE]), ("auto", [{}, {}])])
def test_there_is_none_where_it_is_off_or_nothing_is_shared(started, mps, places):
    with batch.local(MachineShare(places, 2), mps) as used:
        assert used == places
    assert started == []


def test_it_is_no_option_of_a_fit():
    words = ["batch", "a.pdb", "--map", "b.mrc", "--mps", "off", "--steps", "7"]
    assert fit_words(build_parser().parse_args(words)) == ["--steps", "7"]
