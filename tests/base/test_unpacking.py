"""Files that unpack to more than fits in memory."""

import gzip
import io
import struct
import tracemalloc
import zlib

import pytest

from openmm_density import DensityMap, InputError
from openmm_density.base.unpacking import LIMIT_VARIABLE, opened, read_unpacked
from openmm_density.models import read_model
from openmm_density.models.chemistry.planes.dictionaries import read_dictionary
from openmm_density.models.trajectory_files import load_trajectory

from ..fragments import write_fragment


def write_bomb(path, megabytes, start=b""):
    """Write so many megabytes of zeros, in a thousandth of that."""
    packer = zlib.compressobj(9, wbits=31)
    with open(path, "wb") as file:
        file.write(packer.compress(start))
        for _ in range(megabytes):
            file.write(packer.compress(bytes(1_000_000)))
        file.write(packer.flush())
    return path


def test_what_is_read_is_what_was_packed(tmp_path):
    path, plain = tmp_path / "a.gz", tmp_path / "a"
    contents = bytes(range(256)) * 40_000
    path.write_bytes(gzip.compress(contents[:99]) + gzip.compress(contents[99:]))
    plain.write_bytes(contents)
    for name in (path, plain):
        assert read_unpacked(name) == contents
        assert read_unpacked(name, most=1000) == contents[:1000]
        with opened(name) as file:
            assert file.read(256) == contents[:256]
            assert file.read() == contents[256:]


@pytest.mark.parametrize("name", ["a.pdb.gz", "a.cif.gz", "a.mrc.gz", "a.situs.gz", "a.mtz.gz", "a.xyz.gz"])
def test_a_file_that_unpacks_to_more_than_the_limit_is_refused_on_the_way(tmp_path, monkeypatch, name):
    sizes = struct.pack("<4i", 200, 200, 300, 2).ljust(208, b"\0") + b"MAP "
    path = write_bomb(tmp_path / name, 60, sizes if "mrc" in name else b"")
    topology = write_fragment(tmp_path / "model.pdb", residues=4)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.02")
    read = {".cif": read_dictionary, ".pdb": read_model, ".xyz": lambda path: load_trajectory(path, topology)}
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read.get(path.suffixes[0], DensityMap.from_file)(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(f"{path}: it unpacks to more than 0.02 GB") and LIMIT_VARIABLE in message
    assert peak < 45e6


def test_the_limit_can_be_raised_and_must_be_a_number(tmp_path, monkeypatch):
    path = write_bomb(tmp_path / "a.gz", 3)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.0029")
    with pytest.raises(InputError, match=r"more than 0\.0029 GB"):
        read_unpacked(path)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.003")
    assert len(read_unpacked(path)) == 3_000_000
    for wrong in ("much", "-1", "nan"):
        monkeypatch.setenv(LIMIT_VARIABLE, wrong)
        with pytest.raises(
            InputError, match=f"{LIMIT_VARIABLE} .* must be a positive number of GB, found {wrong}"
        ):
            read_unpacked(path)


def test_a_file_that_is_not_compressed_has_no_limit(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT_VARIABLE, "0.000001")
    (tmp_path / "a").write_bytes(bytes(5000))
    assert len(read_unpacked(tmp_path / "a")) == 5000


@pytest.mark.parametrize("damage", ["cut", "flipped", "header"])
def test_a_damaged_file_is_not_whole(tmp_path, damage):
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(bytes(range(256)) * 100)
    contents = bytearray(packed.getvalue())
    if damage == "cut":
        del contents[-20:]
    else:
        contents[2 if damage == "header" else -6] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(contents)
    with pytest.raises(InputError, match=r"a\.gz: it is not a whole gzip file \(.*\): copy it again"):
        read_unpacked(tmp_path / "a.gz")
