"""What all tests have: real maps and models, random numbers, threads."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    import mdtraj

    from openmm_density import DensityMap
    from openmm_density.models import Model

# Workers of pytest-xdist run side by side, and so does what they start: a thread each, unless a test or who runs them asks for
# more. It is read when torch and OpenMM are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENMM_CPU_THREADS", "1")
# Signals are sent to fits in the tests' own process, which would otherwise be killed where the machine is slow.
os.environ.setdefault("OPENMM_DENSITY_END_SECONDS", "3600")

import torch

from .forked_processes import ForkedProcess, forking
from .seeds import shift_seeds
from .variations import SIMULATING

shift_seeds()

# Triton decides between its compiler and its interpreter when a kernel is defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Python's collector would look again and again through all that imports and collection made and keep: a fifth of the tests' time.
gc.set_threshold(100_000)

PROJECT = Path(__file__).resolve().parents[1]
THREADS = int(os.environ["OMP_NUM_THREADS"].split(",")[0])
SMALL_DATA = PROJECT / "tests" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that simulate."""
    for item in items:
        if item.path.relative_to(PROJECT / "tests").as_posix().startswith(SIMULATING):
            item.add_marker(pytest.mark.simulates)


def pytest_collection_finish() -> None:
    """Leave what is there before the first test out of all collections of garbage; on a GPU kernels are looked for there."""
    gc.collect()
    if not torch.cuda.is_available():
        gc.freeze()


@pytest.fixture(scope="session")
def small_data() -> Path:
    """Return the folder of the small real maps and models that the project ships; its README.md says what they are."""
    return SMALL_DATA


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of the whole real maps and models, for what the small ones cannot show; skip where there is none."""
    for folder in (os.environ.get("OPENMM_DENSITY_DATA"), PROJECT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("no whole maps and models: set OPENMM_DENSITY_DATA to their folder")


@pytest.fixture(scope="session")
def kinesin_path() -> Path:
    """Return the file of a kinesin that was fitted into its map."""
    return SMALL_DATA / "emd6187_kinesin" / "1bg2_K_fitted.pdb"


@pytest.fixture(scope="module")
def kinesin(kinesin_path: Path) -> mdtraj.Trajectory:
    """Return it as a trajectory of one frame."""
    from openmm_density.models.trajectory_files import load_trajectory

    return load_trajectory(kinesin_path)


def _shared_model(path: Path) -> Model:
    """Return a model for all tests, and what the package remembers of its topology: one that changes atoms reads its own."""
    from openmm_density.models import read_model

    model = read_model(path)
    for values in vars(model).values():
        if isinstance(values, np.ndarray):
            values.setflags(write=False)
    return model


@pytest.fixture(scope="session")
def kinase() -> Model:
    """Return open adenylate kinase, without hydrogens."""
    return _shared_model(PROJECT / "examples" / "data" / "adk_open.pdb")


@pytest.fixture(scope="session")
def emd5925() -> Model:
    """Return the chain of 94 residues that was deposited for EMD-5925."""
    return _shared_model(SMALL_DATA / "emd5925_frag" / "5925_native.pdb")


@pytest.fixture(scope="session")
def map5925() -> DensityMap:
    """Return the map of EMD-5925, of 3.64 Å, around that chain."""
    from openmm_density import DensityMap

    density_map = DensityMap.from_file(SMALL_DATA / "emd5925_frag" / "emd5925.mrc.gz")
    density_map.data.setflags(write=False)
    return density_map


@pytest.fixture(scope="session")
def emd6374() -> Model:
    """Return the chain of 180 residues that was deposited for EMD-6374."""
    return _shared_model(SMALL_DATA / "emd6374_frag" / "6374_native.pdb")


@pytest.fixture(scope="session")
def haemoglobin() -> Model:
    """Return haemoglobin with its haems and waters."""
    return _shared_model(SMALL_DATA / "emd3488_5ni1" / "5ni1_updated.cif")


@pytest.fixture(scope="session")
def rna() -> Model:
    """Return a folded RNA of a crystal."""
    return _shared_model(SMALL_DATA / "zoo" / "4p5j_rna.pdb")


@pytest.fixture(scope="session")
def dna() -> Model:
    """Return the dodecamer of Drew and Dickerson."""
    return _shared_model(SMALL_DATA / "zoo" / "1bna_duplex.pdb")


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """Start each test with random numbers of its own and the threads asked for, whatever ran before it."""
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(THREADS)


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> None:
    """Heed Ctrl-C, which a shell has processes ignore that it starts in the background: tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> Iterator[None]:
    """End what processes are forked from after the last test."""
    yield
    if ForkedProcess.server is not None:
        ForkedProcess.server.end()


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Fork the processes of Python that a file's tests start, or the package for them, from one that has imported it."""
    with forking():
        yield


@pytest.fixture(scope="session", autouse=True)
def drawing(request: pytest.FixtureRequest) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Leave the pictures of fits empty, as drawing takes longer than a short fit; yield what has them drawn."""
    if not {"batch", "cli", "crystal_fit", "documentation", "fitting", "report", "series"} & {
        part for item in request.session.items for part in item.path.parts
    }:
        yield nullcontext
        return
    from openmm_density.report import overview

    drawn = overview.plot_overview

    @contextmanager
    def draw() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(overview, "plot_overview", drawn)
            yield

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(overview, "plot_overview", lambda path, *_, **__: path.write_bytes(b""))
        yield draw
