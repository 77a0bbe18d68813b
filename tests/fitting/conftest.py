"""A fit that several test files look at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openmm_density.fitting import FitResult, FlexibleFit, find_protocol

from ..fragments import RESOLUTION, fragment, map_of

RESIDUES = 24


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[FlexibleFit, FitResult]:
    """Return a short fit of a fragment of adenylate kinase, and its result."""
    folder = tmp_path_factory.mktemp("fitted")
    reference = fragment(folder / "reference.pdb", residues=RESIDUES)
    model = fragment(folder / "model.pdb", (1.0, -0.8, 0.6), RESIDUES)
    protocol = replace(find_protocol("quick", RESOLUTION), strength=30.0, minimize_last=20).with_steps(80)
    fit = FlexibleFit(
        model,
        map_of(RESIDUES, 0.1, 0, folder),
        RESOLUTION,
        protocol,
        threads=1,
        report_interval=40,
        reference=reference,
    )
    return fit, fit.run()


@pytest.fixture(scope="module", autouse=True)
def _forked(forked: None) -> None:
    """Fork the processes of all files here."""
