"""Where the tests find the real maps and models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

# Triton decides between its compiler and its interpreter when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Give the folder of real maps and models; skip where there is none."""
    for folder in (os.environ.get("OPENMM_DENSITY_DATA"), PROJECT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("no real maps and models: set OPENMM_DENSITY_DATA to their folder")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Make a test's random numbers its own, whichever tests ran before it."""
    torch.manual_seed(0)
