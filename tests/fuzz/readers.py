"""What is fuzzed: each reader with small real files of its format, and what a valid object is."""

from __future__ import annotations

import gzip
import math
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from openmm import app

from openmm_density.base.errors import InputError
from openmm_density.fitting.adaptive_strength import AdaptiveStrength
from openmm_density.fitting.checkpoints import PREVIOUS, STATE, RunFolder
from openmm_density.fitting.convergence import Plateau
from openmm_density.fitting.fit_result import Row
from openmm_density.fitting.protocols import Protocol, Stage, find_protocol
from openmm_density.fitting.protocols.protocol_file import read_protocol
from openmm_density.fitting.run_state import RunState
from openmm_density.maps.density_map import DensityMap
from openmm_density.maps.map_files import POSSIBLE_VOXELS
from openmm_density.models.chemistry.planes.dictionaries import read_dictionary
from openmm_density.models.structures import read_model

from ..conftest import PROJECT
from ..maps.test_map_files import write_mrc
from . import mutations

DATA = PROJECT / "tests" / "data"


@dataclass(frozen=True)
class Reader:
    """A reader under test: `read` raises `AssertionError` where the result is not valid, `make_samples` makes whole files in a
    folder and returns their contents, and one of the mutations `ways` is chosen for each seed.
    """

    name: str
    suffix: str
    read: Callable[[Path], None]
    make_samples: Callable[[Path], list[bytes]]
    ways: list[mutations.Mutation]

    @cached_property
    def samples(self) -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            return self.make_samples(Path(folder))

    def mutated(self, seed: int) -> bytes:
        """Return the mutation of a seed, one to three changes deep."""
        rng = random.Random(f"{self.name} {seed}")
        contents = rng.choice(self.samples)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            if contents:
                # What is damaged already cannot always be damaged once more.
                with suppress(Exception):
                    contents = rng.choice(self.ways)(rng, contents)
        return contents


def _read_map(path: Path) -> None:
    density_map = DensityMap.from_file(path)
    data = density_map.data
    assert (
        data.dtype == np.float32 and data.flags.c_contiguous and data.flags.writeable and data.flags.aligned
    )
    assert np.isfinite(data).all() and data.min() < data.max()
    assert density_map.matrix.shape == (3, 3) and density_map.origin.shape == (3,)
    low, high = POSSIBLE_VOXELS
    assert ((density_map.voxel_size >= low) & (density_map.voxel_size <= high)).all()
    assert np.isfinite(density_map.origin).all() and np.isfinite(density_map.cell).all()
    assert len(repr(density_map)) < 500


def _read_model(path: Path) -> None:
    model = read_model(path)
    n = len(model.records)
    assert n and model.topology.getNumAtoms() == n
    assert model.positions.dtype == model.b_factors.dtype == model.occupancies.dtype == np.float64
    assert model.positions.shape == (n, 3) and np.abs(model.positions).max() <= 1e6
    assert model.b_factors.shape == model.occupancies.shape == (n,)
    alternates = model.alternates
    for values in (model.b_factors, model.occupancies, alternates.b_factors, alternates.occupancies):
        assert np.isfinite(values).all() and (np.abs(values) <= 1e6).all()
    assert np.isfinite(alternates.positions).all()
    for record in (*model.records, *alternates.records):
        names = record.name, record.residue_name, record.chain
        for word in (*names, record.element, record.altloc, record.insertion_code):
            assert isinstance(word, str) and word.isascii()
        assert isinstance(record.residue_number, int)
    assert model.cell is None or all(math.isfinite(value) and value > 0 for value in model.cell)
    for bond in model.topology.bonds():
        assert bond[0] is not bond[1]


def _read_dictionary(path: Path) -> None:
    components = read_dictionary(path)
    assert components
    for name, component in components.items():
        assert isinstance(name, str)
        assert all(isinstance(word, str) for pair in component.elements.items() for word in pair)
        assert all(math.isfinite(order) and order >= 0 for order in component.bonds.values())
        for members in component.planes.values():
            assert all(sigma is None or (math.isfinite(sigma) and sigma > 0) for _, sigma in members)


def _read_protocol(path: Path) -> None:
    protocol = read_protocol(path)
    assert isinstance(protocol, Protocol) and protocol.steps >= 1
    for stage in protocol.stages:
        assert isinstance(stage, Stage) and isinstance(stage.steps, int) and stage.steps >= 0
        assert all(math.isfinite(part) for part in (*stage.strength, *stage.temperature))
        assert stage.resolution is None or (math.isfinite(stage.resolution) and stage.resolution > 0)
    protocol.write(path)
    assert read_protocol(path) == protocol


def _read_state(path: Path) -> None:
    """Read a state beside a whole one before it, which must come back where it cannot be read, and alone."""
    folder = path.parent / "run"
    folder.mkdir(exist_ok=True)
    (folder / STATE).write_bytes(path.read_bytes())
    (folder / PREVIOUS).write_bytes(STATES.samples[0])
    with suppress(FileNotFoundError):
        (folder / "trajectory.dcd").unlink()
    _check_state(RunFolder(folder).load())
    (folder / PREVIOUS).unlink()
    _check_state(RunFolder(folder).load())


def _check_state(state: RunState) -> None:
    n = len(state.positions)
    for array in (state.positions, state.velocities, state.relaxed):
        assert array.dtype == np.float64 and array.shape == (n, 3)
        assert np.isfinite(array).all() and array.flags.writeable
    assert state.box is None or (state.box.shape == (3, 3) and np.isfinite(state.box).all())
    for name in ("step", "stage", "stage_step", "segment", "frames", "caution"):
        assert type(getattr(state, name)) is int and getattr(state, name) >= 0
    assert math.isfinite(state.seconds)
    assert all(isinstance(row, Row) for row in state.rows)
    assert {field.name for field in fields(state)} == vars(state).keys()


def _excerpt_of_map(path: Path, size: tuple[int, int, int]) -> bytes:
    """Return the header of a map, and as many voxels out of its middle, as if there were no more."""
    contents = path.read_bytes()
    if contents[:2] == b"\x1f\x8b":
        contents = gzip.decompress(contents)
    order = ">" if contents[212] == 0x11 else "<"
    header = np.frombuffer(contents[:1024], f"{order}i4").copy()
    start, width = 1024 + int(header[23]), {0: 1, 1: 2, 2: 4, 6: 2, 12: 2}[int(header[3])]
    start += math.prod(header[:3].tolist()) // 2 * width
    header[:3] = size
    header[23] = 0
    return header.tobytes() + contents[start : start + math.prod(size) * width]


def _mrc_samples(folder: Path) -> list[bytes]:
    real = [
        "emd21457_ntd/emd_21457_seg.mrc",
        "emd5925_frag/emd5925.mrc.gz",
        "xraymap_3pqr_R32/3pqr-mode0.ccp4",
    ]
    samples = [
        _excerpt_of_map(DATA / name, (9, 8, 7)) for name in [*real, "xraymap_3pqr_R32/3pqr-bigendian.ccp4"]
    ]
    data = np.random.default_rng(0).normal(size=(6, 7, 8))
    # Half of the cell of a crystal, which its operators fill.
    options = {"space_group": 4, "cell": (12, 11, 10, 90, 98, 90), "sampling": (8, 14, 6)}
    symmetry = ("X,Y,Z", "-X,Y+1/2,-Z")
    samples.append(write_mrc(folder / "a.mrc", data, **options, symmetry=symmetry).read_bytes())
    samples.append(write_mrc(folder / "a.mrc", data, mode=12, axes=(2, 3, 1), start=(3, -2, 1)).read_bytes())
    return samples


def _mtz_samples(folder: Path) -> list[bytes]:
    real = gemmi.read_mtz_file(str(DATA / "xray_1g8a_P21" / "composite_omit_map.mtz"))
    data = np.array(real, copy=True)
    real.set_data(data[np.argsort(real.make_1_d2_array())[:150]])
    real.write_to_file(str(folder / "a.mtz"))
    small = gemmi.Mtz(with_base=True)
    small.spacegroup = gemmi.SpaceGroup("P 61 2 2")
    small.set_cell_for_all(gemmi.UnitCell(20, 20, 30, 90, 90, 120))
    small.add_dataset("synthetic")
    small.add_column("FWT", "F")
    small.add_column("PHWT", "P")
    indices = gemmi.make_miller_array(small.cell, small.spacegroup, 4.0)
    values = np.random.default_rng(0).uniform(0, 300, (len(indices), 2))
    small.set_data(np.column_stack([indices, values]).astype(np.float32))
    small.write_to_file(str(folder / "b.mtz"))
    return [(folder / name).read_bytes() for name in ("a.mtz", "b.mtz")]


def _situs_samples(folder: Path) -> list[bytes]:
    density_map = DensityMap(
        np.random.default_rng(0).normal(size=(5, 6, 7)), np.eye(3) * 1.5, [1.5, -2.25, 30.0]
    )
    density_map.write(folder / "a.situs")
    return [(folder / "a.situs").read_bytes()]


def _pdb_lines(name: str, wanted: Callable[[str], bool], most: int) -> Iterator[str]:
    lines = (DATA / name).read_text().splitlines()
    yield from [line for line in lines if wanted(line)][:most]


def _pdb_samples(folder: Path) -> list[bytes]:
    """Excerpts with links, alternates, a crystal, ligands, insertion codes, several models, hydrogens."""
    crystal, ligands = "xraymap_3pqr_R32/3pqr.pdb", "emd6187_kinesin/1bg2_K_fitted.pdb"
    records = ("CRYST1", "SSBOND", "LINK", "HELIX", "SHEET", "CISPEP", "SEQRES", "MODRES")

    def is_atom(line: str) -> bool:
        return line.startswith(("ATOM", "HETATM"))

    rich = [
        *_pdb_lines(crystal, lambda line: line.startswith(records), 30),
        *_pdb_lines(crystal, is_atom, 25),
        *_pdb_lines(crystal, lambda line: is_atom(line) and line[16] != " ", 16),
        "TER",
        *_pdb_lines(crystal, lambda line: line.startswith("HETATM"), 20),
        *_pdb_lines(crystal, lambda line: line.startswith("CONECT"), 10),
        "END",
    ]
    protein = list(_pdb_lines("emd5925_frag/5925_native.pdb", is_atom, 30))
    several = ["MODEL        1", *protein, "ENDMDL", "MODEL        2", *protein, "ENDMDL", "END"]
    molecules = [*_pdb_lines(ligands, lambda line: line.startswith("HETATM"), 35), "END"]
    return ["\n".join(lines).encode() + b"\n" for lines in (rich, rich, several, molecules)]


def _cif_samples(folder: Path) -> list[bytes]:
    """The same as mmCIF, and an excerpt of a deposited file."""
    samples = []
    for text in _pdb_samples(folder)[1:]:
        structure = gemmi.read_pdb_string(text)
        structure.setup_entities()
        samples.append(structure.make_mmcif_document().as_string().encode())
    document = gemmi.cif.read(str(DATA / "emd3488_5ni1" / "5ni1_updated.cif"))
    loop = document[0].find_loop("_atom_site.id").get_loop()
    values, width = loop.values, loop.width()
    loop.set_all_values([[*values[k::width][:20], *values[k::width][-25:]] for k in range(width)])
    samples.append(document.as_string().encode())
    return samples


def _loop(category: str, names: str, *rows: str) -> str:
    return "\n".join(["loop_", *(f"_chem_comp{category}.{name}" for name in names.split()), *rows, ""])


_DICTIONARY = (
    "data_comp_list\n"
    + _loop("", "id group", "LIG NON-POLYMER")
    + "data_comp_LIG\n"
    + _loop(
        *("_atom", "comp_id atom_id type_symbol charge"),
        *("LIG C1 C 0", "LIG C2 C 0", 'LIG "O1\'" O 0', "LIG O2 O -1"),
    )
    + _loop(
        *("_bond", "comp_id atom_id_1 atom_id_2 type aromatic value_dist value_dist_esd"),
        *("LIG C1 C2 SINGLE n 1.50 0.02", 'LIG C2 "O1\'" DELOC n 1.25 0.02', "LIG C2 O2 DELOC n 1.25 0.02"),
    )
    + _loop(
        *("_plane_atom", "comp_id plane_id atom_id dist_esd"),
        *(f"LIG plan-1 {name} 0.02" for name in ("C1", "C2", '"O1\'"', "O2")),
    )
)


def _protocol_samples(folder: Path) -> list[bytes]:
    samples = []
    for name in ("quick", "standard", "cascade", "gentle"):
        find_protocol(name, 4.0).write(folder / "a.toml")
        samples.append((folder / "a.toml").read_bytes())
    samples.append(
        b'timestep = 2.0\n[[stage]]\nname = "a"\nsteps = 400\nstrength = [0.1, 1]\nrestraints = ["ss", "cis"]\n'
    )
    return samples


def _state_samples(folder: Path) -> list[bytes]:
    topology, atoms = app.Topology(), 5
    chain = topology.addChain("A")
    for number in range(atoms):
        topology.addAtom("CA", app.element.carbon, topology.addResidue("GLY", chain, str(number)))
    rng = np.random.default_rng(0)
    samples = []
    for step, box in ((40, None), (80, np.eye(3) * 4.0)):
        arrays = {name: rng.normal(size=(atoms, 3)) for name in ("positions", "velocities", "relaxed")}
        model = arrays["positions"]
        state = RunState(
            **arrays,
            box=box,
            step=step,
            strength=12.5,
            adaptive=AdaptiveStrength(factor=1.2, average=0.5),
            plateau=Plateau(previous=(0.5, model), total=model, similarities=[0.4, 0.5], steps=80),
            ended=[{"name": "a", "steps": 40, "resolution": 4.0, "converged": False}],
            blow_ups=["The simulation became unstable."],
            found={"rebuilding": [{"stage": "a", "undone": False}]},
            rows=[Row(step, "a", -1.0, 2.0, 3.0, 0.4, 0.3, 300.0, math.nan)],
        )
        run = RunFolder(folder / "run")
        run.save(state, topology, np.zeros(atoms))
        samples.append((run.path / STATE).read_bytes())
    return samples


def _packed_mrc_samples(folder: Path) -> list[bytes]:
    return [gzip.compress(sample, 1, mtime=0) for sample in _mrc_samples(folder)]


_PACKED_MRC = [*mutations.BYTES, mutations.bomb, *[mutations.packed(mutations.MRC)] * 8]
STATES = Reader("state", ".npz", _read_state, _state_samples, mutations.STATE)
READERS = {
    reader.name: reader
    for reader in (
        Reader("mrc", ".mrc", _read_map, _mrc_samples, mutations.MRC),
        Reader("mrc.gz", ".mrc.gz", _read_map, _packed_mrc_samples, _PACKED_MRC),
        Reader("mtz", ".mtz", _read_map, _mtz_samples, mutations.MTZ),
        Reader("situs", ".situs", _read_map, _situs_samples, [*mutations.BYTES, *mutations.TEXT]),
        Reader("pdb", ".pdb", _read_model, _pdb_samples, [*mutations.BYTES, *mutations.TEXT]),
        Reader("mmcif", ".cif", _read_model, _cif_samples, [*mutations.BYTES, *mutations.TEXT]),
        Reader(
            *("dictionary", ".cif", _read_dictionary, lambda _: [_DICTIONARY.encode()]),
            [*mutations.BYTES, *mutations.TEXT],
        ),
        Reader("toml", ".toml", _read_protocol, _protocol_samples, [*mutations.BYTES, *mutations.TEXT]),
        STATES,
    )
}


def outcome_of(reader: Reader, path: Path) -> tuple[str, str]:
    """Read a file; return "read", "refused" or "failed", and what was said."""
    try:
        reader.read(path)
    except InputError as error:
        said = str(error)
        # A state is named by its folder.
        named = str(path.parent / "run") if reader is STATES else str(path)
        if named in said and said.isprintable() and len(said) < 2000:
            return "refused", said
        return "failed", f"the message is not one line that names the file: {said[:500]!r}"
    except BaseException as error:
        return "failed", _told(error)
    return "read", ""


def _told(error: BaseException) -> str:
    place: Any = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:300]}"
