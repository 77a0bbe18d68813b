from __future__ import annotations

import gzip
import struct
import tracemalloc
import warnings
from itertools import permutations
from typing import ClassVar

import gemmi
import mrcfile
import numpy as np
import pytest
from mrcfile.dtypes import HEADER_DTYPE

from openmm_density import DensityMap
from openmm_density.base.errors import InputError

from .test_density_map import TRICLINIC, orthogonalization, points_inside, random_data


def write_mrc(
    path,
    data,
    *,
    cell=None,
    sampling=None,
    axes=(1, 2, 3),
    start=(0, 0, 0),
    origin=(0, 0, 0),
    mode=2,
    big_endian=False,
    space_group=1,
    symmetry=(),
):
    """Write data[z, y, x] with the given header; `start` is along x, y, z and is put into the file's axis order."""
    nz, ny, nx = data.shape
    sampling = sampling or (nx, ny, nz)
    cell = cell or (1.5 * sampling[0], 1.5 * sampling[1], 1.5 * sampling[2], 90, 90, 90)
    dtype = {0: np.int8, 1: np.int16, 2: np.float32, 6: np.uint16, 12: np.float16}[mode]
    in_file = data.transpose([3 - axis for axis in reversed(axes)]).astype(dtype)
    header = np.zeros((), HEADER_DTYPE).view(np.recarray)
    header.nz, header.ny, header.nx = in_file.shape
    header.mode, header.ispg = mode, space_group
    header.nxstart, header.nystart, header.nzstart = (start[axis - 1] for axis in axes)
    header.mx, header.my, header.mz = sampling
    header.cella, header.cellb = tuple(cell[:3]), tuple(cell[3:])
    header.mapc, header.mapr, header.maps = axes
    header.origin = tuple(origin)
    header.map, header.machst = b"MAP ", [0x11, 0x11, 0, 0] if big_endian else [0x44, 0x44, 0, 0]
    extended = b"".join(operator.ljust(80).encode() for operator in symmetry)
    header.nsymbt = len(extended)
    order = ">" if big_endian else "<"
    content = np.array(header).astype(HEADER_DTYPE.newbyteorder(order)).tobytes() + extended
    content += in_file.astype(in_file.dtype.newbyteorder(order)).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def gemmi_values(path, points):
    """Let gemmi read, place and interpolate."""
    ccp4 = gemmi.read_ccp4_map(str(path))
    ccp4.setup(float("nan"), gemmi.MapSetup.Full)
    return np.array([ccp4.grid.interpolate_value(gemmi.Position(*point)) for point in points])


def read_error(path, **arguments):
    with pytest.raises(InputError) as caught:
        DensityMap.from_file(path, **arguments)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


class TestReadingMrc:
    @pytest.mark.parametrize("big_endian", [False, True])
    @pytest.mark.parametrize("mode", [0, 1, 2, 6, 12])
    def test_modes_and_byte_orders(self, tmp_path, mode, big_endian):
        data = random_data((4, 5, 6))
        if mode == 6:
            data = np.abs(data)
        path = write_mrc(tmp_path / "a.mrc", data, mode=mode, big_endian=big_endian)
        density_map = DensityMap.from_file(path)
        assert density_map.data.dtype == np.float32 and density_map.data.flags.c_contiguous
        assert density_map.data.flags.writeable
        np.testing.assert_array_equal(density_map.data, data)
        np.testing.assert_allclose(density_map.matrix, np.eye(3) * 1.5)

    def test_every_voxel_counts_as_gemmi_reads_it(self, tmp_path):
        path = tmp_path / "a.map"
        grid = gemmi.FloatGrid(random_data((6, 5, 4)).astype(np.float32))
        grid.set_unit_cell(gemmi.UnitCell(9, 8, 7, 90, 90, 90))
        grid.spacegroup = gemmi.SpaceGroup("P 1")
        ccp4 = gemmi.Ccp4Map()
        ccp4.grid = grid
        ccp4.update_ccp4_header()
        ccp4.write_ccp4_map(str(path))
        density_map = DensityMap.from_file(path)
        assert not density_map.periodic
        np.testing.assert_array_equal(density_map.data, grid.array.T)
        np.testing.assert_allclose(density_map.voxel_size, [9 / 6, 8 / 5, 7 / 4])

    @pytest.mark.parametrize("axes", list(permutations((1, 2, 3))))
    @pytest.mark.parametrize("cell", [(20.0, 24.0, 18.0, 90.0, 90.0, 90.0), TRICLINIC])
    def test_axis_orders_and_nstart_as_gemmi_places_them(self, tmp_path, axes, cell):
        data = random_data((4, 5, 6))
        path = write_mrc(
            tmp_path / "a.ccp4", data, axes=axes, start=(3, -2, 5), cell=cell, sampling=(20, 22, 18)
        )
        density_map = DensityMap.from_file(path)
        np.testing.assert_array_equal(density_map.data, data)
        assert not density_map.periodic
        points = points_inside(density_map)
        np.testing.assert_allclose(density_map.value_at(points), gemmi_values(path, points), atol=1e-3)

    def test_origin_wins_over_nstart_and_counts_once(self, tmp_path):
        data = random_data((4, 5, 6))
        both = DensityMap.from_file(
            write_mrc(tmp_path / "a.mrc", data, start=(10, 20, 30), origin=(15, 30, 45))
        )
        np.testing.assert_array_equal(both.origin, [15, 30, 45])
        only_one_coordinate = write_mrc(tmp_path / "b.mrc", data, start=(10, 20, 30), origin=(0, 0, -7.5))
        np.testing.assert_array_equal(DensityMap.from_file(only_one_coordinate).origin, [0, 0, -7.5])
        start_alone = write_mrc(tmp_path / "c.mrc", data, start=(10, 20, 30))
        np.testing.assert_allclose(DensityMap.from_file(start_alone).origin, [15, 30, 45])

    def test_origin_of_a_triclinic_map_is_cartesian(self, tmp_path):
        data = random_data((4, 5, 6))
        path = write_mrc(tmp_path / "a.mrc", data, cell=TRICLINIC, sampling=(20, 22, 18), origin=(3, 4, 5))
        density_map = DensityMap.from_file(path)
        np.testing.assert_array_equal(density_map.origin, [3, 4, 5])
        np.testing.assert_allclose(density_map.matrix, orthogonalization(TRICLINIC) / (20, 22, 18), atol=1e-6)

    def test_angles_of_zero_are_right_angles(self, tmp_path):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)), cell=(6, 5, 4, 0, 0, 0))
        np.testing.assert_allclose(DensityMap.from_file(path).matrix, np.eye(3))

    def test_wrong_machine_stamp_is_forgiven_without_a_warning(self, tmp_path):
        data = random_data((4, 5, 6))
        path = write_mrc(tmp_path / "a.mrc", data)
        content = bytearray(path.read_bytes())
        content[212:216] = bytes([0x11, 0x11, 0, 0])
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(DensityMap.from_file(path).data, data)

    def test_single_section_of_an_image_stack(self, tmp_path):
        data = random_data((1, 5, 6))
        path = write_mrc(tmp_path / "a.mrc", data, space_group=0)
        assert DensityMap.from_file(path).shape == (1, 5, 6)


class TestCrystals:
    def symmetric_grid(self, name="P 41 21 2", size=(24, 24, 36), cell=(30, 30, 45, 90, 90, 90)):
        grid = gemmi.FloatGrid(*size)
        grid.spacegroup = gemmi.SpaceGroup(name)
        grid.set_unit_cell(gemmi.UnitCell(*cell))
        grid.array[:] = random_data(size, seed=3)
        grid.symmetrize_avg()
        return grid

    @pytest.mark.parametrize("axes", [(1, 2, 3), (2, 1, 3), (3, 1, 2)])
    def test_an_asymmetric_unit_is_expanded_to_the_cell(self, tmp_path, axes):
        grid = self.symmetric_grid()
        brick = gemmi.find_asu_brick(grid.spacegroup).size
        size = [n * extent // 24 + 3 for n, extent in zip((24, 24, 36), brick)]
        start = (-1, 22, -1)
        piece = grid.array[np.ix_(*[np.arange(s, s + n) % m for s, n, m in zip(start, size, grid.shape)])]
        path = write_mrc(
            tmp_path / "a.ccp4",
            piece.T,
            axes=axes,
            start=start,
            sampling=grid.shape,
            cell=(30, 30, 45, 90, 90, 90),
            space_group=92,
        )
        density_map = DensityMap.from_file(path)
        assert density_map.periodic
        np.testing.assert_allclose(density_map.data, grid.array.T, atol=1e-4)
        np.testing.assert_allclose(density_map.origin, 0, atol=1e-9)
        finite = DensityMap.from_file(path, periodic=False)
        assert not finite.periodic and finite.shape == piece.T.shape
        np.testing.assert_allclose(finite.origin, np.array(start) * 1.25)

    def test_origin_moves_an_expanded_cell_with_its_first_voxel(self, tmp_path):
        grid = self.symmetric_grid()
        path = write_mrc(
            tmp_path / "a.ccp4",
            grid.array[:, :, :35].T,
            start=(2, 0, 0),
            origin=(100, 0, 0),
            sampling=grid.shape,
            cell=(30, 30, 45, 90, 90, 90),
            space_group=92,
        )
        density_map = DensityMap.from_file(path)
        assert density_map.periodic
        np.testing.assert_allclose(density_map.origin, [97.5, 0, 0])

    def test_a_piece_that_symmetry_does_not_complete_stays_finite(self, tmp_path):
        path = write_mrc(
            tmp_path / "a.ccp4",
            random_data((5, 6, 7)),
            start=(1, 2, 3),
            sampling=(24, 24, 36),
            cell=(30, 30, 45, 90, 90, 90),
            space_group=92,
        )
        density_map = DensityMap.from_file(path)
        assert not density_map.periodic and density_map.shape == (5, 6, 7)
        np.testing.assert_allclose(density_map.origin, [1.25, 2.5, 3.75])
        assert "asymmetric unit" in read_error(path, periodic=True)

    def test_rhombohedral_setting_follows_the_cell(self, tmp_path):
        """Space group 155 names two settings; only the rhombohedral one maps this piece onto the whole cell."""
        cell = (20, 20, 20, 80, 80, 80)
        grid = self.symmetric_grid("R 3 2:R", (12, 12, 12), cell)
        path = write_mrc(
            tmp_path / "a.ccp4", grid.array[:, :, :7].T, sampling=(12, 12, 12), cell=cell, space_group=155
        )
        density_map = DensityMap.from_file(path)
        assert density_map.periodic
        np.testing.assert_allclose(density_map.data, grid.array.T, atol=1e-4)

    def test_operators_in_the_extended_header_name_the_setting(self, tmp_path):
        """Unique axis c is no reference setting of space group 4: only the operators tell."""
        cell = (20, 24, 18, 90, 90, 100)
        grid = self.symmetric_grid("P 1 1 21", (12, 14, 16), cell)
        path = write_mrc(
            tmp_path / "a.ccp4",
            grid.array[:, :, :9].T,
            sampling=(12, 14, 16),
            cell=cell,
            space_group=4,
            symmetry=["X,Y,Z", "-X,-Y,Z+1/2"],
        )
        density_map = DensityMap.from_file(path)
        assert density_map.periodic
        np.testing.assert_allclose(density_map.data, grid.array.T, atol=1e-4)

    def test_what_a_box_in_p1_is_taken_for(self, tmp_path):
        data = random_data((4, 5, 6))
        for space_group in (0, 1):
            box = write_mrc(tmp_path / "box.mrc", data, space_group=space_group)
            assert not DensityMap.from_file(box).periodic
            assert DensityMap.from_file(box, periodic=True).periodic
        crystal = write_mrc(tmp_path / "crystal.mrc", data, cell=TRICLINIC)
        assert DensityMap.from_file(crystal).periodic
        piece = write_mrc(tmp_path / "piece.mrc", data, cell=TRICLINIC, sampling=(7, 6, 5))
        assert not DensityMap.from_file(piece).periodic

    def test_periodic_is_refused_for_a_piece_in_p1(self, tmp_path):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)), sampling=(9, 9, 9))
        assert "asymmetric unit" in read_error(path, periodic=True)


class TestMtz:
    CELL = (20.0, 24.0, 18.0, 90.0, 98.0, 90.0)

    def write(self, path, labels=("FWT", "PHWT")):
        mtz = gemmi.Mtz(with_base=True)
        mtz.spacegroup = gemmi.SpaceGroup("P 1 21 1")
        mtz.set_cell_for_all(gemmi.UnitCell(*self.CELL))
        mtz.add_dataset("map")
        mtz.add_column(labels[0], "F")
        mtz.add_column(labels[1], "P")
        hkl = gemmi.make_miller_array(mtz.cell, mtz.spacegroup, 2.5)
        rng = np.random.default_rng(5)
        columns = np.column_stack([hkl, rng.uniform(1, 10, len(hkl)), rng.uniform(0, 360, len(hkl))])
        centric = mtz.spacegroup.operations()
        columns[[centric.is_reflection_centric(h) for h in hkl], 4] = 0
        mtz.set_data(columns.astype(np.float32))
        mtz.write_to_file(str(path))
        return mtz, path

    @pytest.mark.parametrize("labels", [("FWT", "PHWT"), ("2FOFCWT", "PH2FOFCWT")])
    def test_map_is_the_fourier_sum(self, tmp_path, labels):
        mtz, path = self.write(tmp_path / "a.mtz", labels)
        density_map = DensityMap.from_file(path)
        assert density_map.periodic and density_map.voxel_size.max() < 2.5 / 2.9
        np.testing.assert_allclose(
            density_map.matrix * density_map.size, orthogonalization(self.CELL), atol=1e-4
        )
        mtz.expand_to_p1()
        h, amplitude, phase = mtz.array[:, :3], mtz.array[:, 3], np.radians(mtz.array[:, 4])
        index = np.random.default_rng(0).integers(0, density_map.size, (20, 3))
        angle = 2 * np.pi * (index / density_map.size) @ h.T
        expected = 2 / mtz.cell.volume * (amplitude * np.cos(angle - phase)).sum(axis=1)
        i, j, k = index.T
        np.testing.assert_allclose(density_map.data[k, j, i], expected, atol=1e-4)

    def test_columns_are_chosen_or_listed(self, tmp_path):
        _, path = self.write(tmp_path / "a.mtz", ("MYF", "MYPHI"))
        assert "MYF (F), MYPHI (P)" in read_error(path)
        assert DensityMap.from_file(path, columns=("MYF", "MYPHI")).periodic
        assert not DensityMap.from_file(path, columns=("MYF", "MYPHI"), periodic=False).periodic
        assert "'FWT'" in read_error(path, columns=("FWT", "MYPHI"))
        assert "phases" in read_error(path, columns=("MYF", "H"))
        assert "two labels" in read_error(path, columns=("MYF",))

    def test_not_an_mtz_file(self, tmp_path):
        path = tmp_path / "a.mtz"
        path.write_bytes(b"no MTZ" * 100)
        assert "cannot be read as an MTZ file" in read_error(path)

    @pytest.mark.parametrize(
        ("old", "new", "part"),
        [
            (b"NCOL        5", b"NCOL  9999999", "room for"),
            (b"NCOL        5", b"XCOL        5", "does not give the number of columns"),
            (b"NCOL        5", b"NCOL        4", "cannot be read as an MTZ file"),
            (b"COLUMN FWT ", b"COLUMN F\xe9T ", "not text"),
            (
                b"COLUMN H                              H",
                b"COLUMN H                              F",
                "no indices",
            ),
            (b"MTZ ", b"MTZ:", "does not start with MTZ"),
            (b"CELL    20.0000", b"CELL    1e30000", "unit cell"),
            (b"CELL    20.0000", b"CELL        nan", "unit cell"),
            (struct.pack("<f", 4.0), struct.pack("<f", 0.4), "not whole numbers"),
            (struct.pack("<f", 4.0), struct.pack("<f", np.nan), "not whole numbers"),
            (struct.pack("<f", 4.0), struct.pack("<f", 1e9), "Miller index of 1e+09"),
            (struct.pack("<f", 4.0), struct.pack("<f", 2e4), "Miller index of 20000"),
        ],
    )
    def test_damage(self, tmp_path, old, new, part):
        _, path = self.write(tmp_path / "a.mtz", ("FWT", "PHWT"))
        contents = path.read_bytes()
        place = contents.index(old, 80 if old[0] == 0 else 0)
        path.write_bytes(contents[:place] + new + contents[place + len(old) :])
        assert part in read_error(path)

    def test_columns_belong_to_mtz(self, tmp_path):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)))
        assert "columns" in read_error(path, columns=("FWT", "PHWT"))


class TestSitus:
    TEXT = "2.5 -1.0 2.0 3.0 3 2 2\n\n" + " ".join(str(n) for n in range(10)) + "\n 10 11\n"

    @pytest.mark.parametrize("name", ["a.situs", "a.sit", "a.sit.gz"])
    def test_read(self, tmp_path, name):
        path = tmp_path / name
        text = self.TEXT.encode()
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        density_map = DensityMap.from_file(path)
        np.testing.assert_array_equal(density_map.data, np.arange(12, dtype=np.float32).reshape(2, 2, 3))
        np.testing.assert_array_equal(density_map.matrix, np.eye(3) * 2.5)
        np.testing.assert_array_equal(density_map.origin, [-1, 2, 3])
        assert not density_map.periodic

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            (TEXT[:-4], "found 11:"),
            (TEXT + "12", "found 13:"),
            (TEXT.replace(" 7 ", " seven "), "cannot be read"),
            (TEXT.replace(" 7 ", " nan "), "NaN"),
            (TEXT.replace("2.5", "0"), "positive voxel size"),
            (TEXT.replace("2.5", "wide"), "cannot be read"),
            ("1 0 0 0 2 2", "cannot be read"),
            ("1 0 0 0 2 2 2", "found 0:"),
            ("", "cannot be read"),
            (
                "1 0 0 0 99999 99999 99999 1 2",
                "the 99999 × 99999 × 99999 values that its first line promises, found 2:",
            ),
            ("1 0 0 0 " + 3 * ("9" * 300 + " ") + "1", "not seven numbers"),
            (TEXT.replace(" 7 ", " 7e77 "), "infinite"),
        ],
    )
    def test_errors(self, tmp_path, text, part):
        path = tmp_path / "a.situs"
        path.write_text(text)
        assert part in read_error(path)

    def test_never_periodic(self, tmp_path):
        path = tmp_path / "a.situs"
        path.write_text(self.TEXT)
        assert "periodic" in read_error(path, periodic=True)


class TestReadingErrors:
    def damaged(self, tmp_path, **fields):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)))
        content = bytearray(path.read_bytes())
        for offset, value in fields.values():
            content[offset : offset + len(value)] = value
        path.write_bytes(content)
        return path

    @pytest.mark.parametrize(
        ("offset", "dtype", "values", "part"),
        [
            (0, "i4", [0], "size in its header must be positive"),
            (0, "i4", [-6], "size in its header must be positive"),
            (0, "i4", [7], "cut short"),
            (0, "i4", [5], "longer"),
            (0, "i4", [2**30, 2**30, 2**30], "cut short"),
            (12, "i4", [3], "mode 3"),
            (12, "i4", [4], "mode 4"),
            (12, "i4", [99], "mode 99"),
            (12, "i4", [1], "longer"),
            (28, "i4", [0, 0, 0], "no size"),
            (40, "f4", [0, 0, 0], "no size"),
            (40, "f4", [np.nan], "no size"),
            (40, "f4", [-9], "no size"),
            (40, "f4", [1e30] * 3, "its voxels must measure"),
            (52, "f4", [90, 90, 200], "angles"),
            (52, "f4", [20, 20, 120], "no volume"),
            (64, "i4", [1, 1, 3], "MAPC"),
            (64, "i4", [0, 0, 0], "MAPC"),
            (92, "i4", [80], "cut short"),
            (92, "i4", [-80], "cannot be read"),
            (196, "f4", [np.inf], "ORIGIN"),
            (196, "f4", [1e30], "its first voxel must be within"),
            (208, "i1", [0, 0, 0, 0], "MAP"),
            (1024, "f4", [np.nan], "NaN"),
            (1024, "f4", [np.inf], "infinite"),
            (1024, "f4", [0] * 120, "all 120 voxels"),
        ],
    )
    def test_damaged_headers_and_data(self, tmp_path, offset, dtype, values, part):
        path = self.damaged(tmp_path, field=(offset, np.array(values, dtype).tobytes()))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert part in read_error(path)

    @pytest.mark.parametrize("suffix", [".mrc", ".mrc.gz"])
    @pytest.mark.parametrize(("offset", "values"), [(92, [2**30]), (0, [600, 600, 600])])
    def test_no_memory_is_taken_for_what_a_header_promises(self, tmp_path, offset, values, suffix):
        path = self.damaged(tmp_path, field=(offset, np.array(values, "i4").tobytes()))
        if suffix.endswith(".gz"):
            path.with_suffix(suffix).write_bytes(gzip.compress(path.read_bytes()))
            path = path.with_suffix(suffix)
        tracemalloc.start()
        try:
            assert "cut short" in read_error(path)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 20e6

    def test_stack_of_volumes(self, tmp_path):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)), sampling=(6, 5, 2), space_group=401)
        assert "stack" in read_error(path)

    @pytest.mark.parametrize("length", [0, 100, 1024, 1100])
    def test_cut_short(self, tmp_path, length):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)))
        path.write_bytes(path.read_bytes()[:length])
        read_error(path)

    def test_not_a_map(self, tmp_path):
        path = tmp_path / "a.mrc"
        path.write_bytes(b"no such thing\n" * 200)
        assert "not an MRC or CCP4 map" in read_error(path)

    def test_missing_folder_and_suffix(self, tmp_path):
        assert "no such file" in read_error(tmp_path / "missing.mrc")
        (tmp_path / "folder.mrc").mkdir()
        assert "it is a folder, not a file" in read_error(tmp_path / "folder.mrc")
        path = tmp_path / "a.pdb"
        path.write_text("")
        assert ".situs" in read_error(path)


class TestWriting:
    MAPS: ClassVar = {
        "placed": (np.diag([1.05, 1.1, 1.2]), [-30.25, 4.5, 100.125], False),
        "at zero": (np.eye(3), [0, 0, 0], False),
        "triclinic": (orthogonalization(TRICLINIC) / (10, 12, 9), [5.5, -6.25, 7], False),
        "crystal": (np.diag([1.0, 1.5, 2.0]), [0, 0, 0], True),
        "triclinic crystal": (orthogonalization(TRICLINIC) / (6, 5, 4), [0, 0, 0], True),
    }

    @pytest.mark.parametrize("suffix", [".mrc", ".map", ".ccp4", ".mrc.gz"])
    @pytest.mark.parametrize("kind", MAPS)
    def test_round_trip(self, tmp_path, kind, suffix):
        matrix, origin, periodic = self.MAPS[kind]
        written = DensityMap(random_data((4, 5, 6)) / 7, matrix, origin, periodic)
        path = tmp_path / f"a{suffix}"
        written.write(path)
        read = DensityMap.from_file(path)
        np.testing.assert_array_equal(read.data, written.data)
        np.testing.assert_allclose(read.matrix, written.matrix, atol=1e-6)
        np.testing.assert_array_equal(read.origin, written.origin)
        assert read.periodic == periodic
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        read.write(path)
        again = DensityMap.from_file(path)
        np.testing.assert_array_equal(again.matrix, read.matrix)

    @pytest.mark.parametrize("kind", MAPS)
    def test_other_programs_read_the_same(self, tmp_path, kind):
        matrix, origin, periodic = self.MAPS[kind]
        written = DensityMap(random_data((4, 5, 6)), matrix, origin, periodic)
        path = tmp_path / "a.mrc"
        written.write(path)
        with mrcfile.open(path) as file:
            np.testing.assert_array_equal(file.data, written.data)
            np.testing.assert_allclose(file.header.origin.item(), origin)
            assert file.header.rms == pytest.approx(written.data.std())
        assert mrcfile.validate(path)
        points = points_inside(written)
        # gemmi does not know ORIGIN.
        np.testing.assert_allclose(
            gemmi_values(path, points - np.array(origin)), written.value_at(points), atol=1e-3
        )

    @pytest.mark.parametrize("suffix", [".situs", ".sit.gz"])
    def test_situs_round_trip(self, tmp_path, suffix):
        written = DensityMap(random_data((4, 5, 6)) / 7, np.eye(3) * 1.05, [-30.2, 4.4, 100.1])
        path = tmp_path / f"a{suffix}"
        written.write(path)
        read = DensityMap.from_file(path)
        np.testing.assert_array_equal(read.data, written.data)
        np.testing.assert_array_equal(read.matrix, written.matrix)
        np.testing.assert_array_equal(read.origin, written.origin)

    @pytest.mark.parametrize(
        ("name", "matrix", "periodic", "part"),
        [
            ("a.situs", np.diag([1, 1, 2]), False, "cubic"),
            ("a.situs", orthogonalization(TRICLINIC) / 20, False, "cubic"),
            ("a.situs", np.eye(3), True, "periodic"),
            ("a.mrc", np.array([[0.0, 1, 0], [-1, 0, 0], [0, 0, 1]]), False, "rotated"),
            ("a.mrc", np.diag([1.0, 1, -1]), False, "mirrored"),
            ("a.mtz", np.eye(3), True, ".mtz"),
            ("a.png", np.eye(3), False, "suffix"),
            ("missing/a.mrc", np.eye(3), False, "folder"),
        ],
    )
    def test_what_a_format_cannot_hold(self, tmp_path, name, matrix, periodic, part):
        density_map = DensityMap(random_data((4, 5, 6)), matrix, np.zeros(3), periodic)
        with pytest.raises(InputError, match=part):
            density_map.write(tmp_path / name)
        assert not list(tmp_path.iterdir())

    def test_a_failed_write_keeps_the_old_file(self, tmp_path):
        path = tmp_path / "a.situs"
        path.write_text("old")
        with pytest.raises(InputError):
            DensityMap(random_data((4, 5, 6)), np.diag([1, 1, 2]), np.zeros(3)).write(path)
        assert path.read_text() == "old"


def test_real_maps_are_read_without_a_warning(small_data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = DensityMap.from_file(small_data / "xraymap_3pqr_R32" / "3pqr.ccp4.gz")
        bytes_ = DensityMap.from_file(small_data / "xraymap_3pqr_R32" / "3pqr-mode0.ccp4")
    assert plain.shape == bytes_.shape == (44, 50, 76)
    swapped = DensityMap.from_file(small_data / "xraymap_3pqr_R32" / "3pqr-bigendian.ccp4")
    np.testing.assert_array_equal(swapped.data, plain.data)
    np.testing.assert_array_equal(swapped.origin, plain.origin)
    assert np.corrcoef(plain.data.reshape(-1), bytes_.data.reshape(-1))[0, 1] > 0.99


@pytest.mark.parametrize(
    "name",
    [
        "emd6187_kinesin/chain_K_box.ccp4",
        "emd3488_5ni1/emd_3488.mrc",
        "xraymap_3pqr_R32/3pqr-bigendian.ccp4",
        "xraymap_3pqr_R32/3pqr.ccp4.gz",
        "emd21457_ntd/emd_21457_seg_nstart.mrc",
    ],
)
def test_real_maps_have_their_values_where_gemmi_has_them(small_data, name):
    density_map = DensityMap.from_file(small_data / name)
    points = points_inside(density_map)
    scale = density_map.data.std()
    np.testing.assert_allclose(
        density_map.value_at(points), gemmi_values(small_data / name, points), atol=1e-4 * scale, rtol=1e-3
    )


def test_structure_factors_give_the_map_that_gemmi_makes(small_data):
    path = small_data / "xray_1g8a_P21" / "composite_omit_map.mtz"
    density_map = DensityMap.from_file(path)
    grid = gemmi.read_mtz_file(str(path)).transform_f_phi_to_map("2FOFCWT", "PH2FOFCWT", sample_rate=3)
    points = np.random.default_rng(0).uniform(-100, 100, (50, 3))
    expected = [grid.interpolate_value(gemmi.Position(*point)) for point in points]
    np.testing.assert_allclose(density_map.value_at(points), expected, atol=1e-3 * density_map.data.std())
