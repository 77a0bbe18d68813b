from __future__ import annotations

import gzip
import warnings
from itertools import permutations
from typing import ClassVar

import gemmi
import mrcfile
import numpy as np
import pytest
from mrcfile.dtypes import HEADER_DTYPE
from openmm import app, unit

from openmm_density.errors import InputError
from openmm_density.maps import DensityMap

TRICLINIC = (20.0, 24.0, 18.0, 80.0, 95.0, 110.0)


def orthogonalization(cell):
    return np.array(gemmi.UnitCell(*cell).orth.mat.tolist())


def random_data(shape, seed=0):
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(np.float32)


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


def points_inside(density_map, n=50, seed=1):
    index = np.random.default_rng(seed).uniform(0, density_map.size - 1, (n, 3))
    return density_map.origin + index @ density_map.matrix.T


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

    def test_compressed(self, tmp_path):
        data = random_data((4, 5, 6))
        path = write_mrc(tmp_path / "a.MAP.gz", data, origin=(1, 2, 3))
        np.testing.assert_array_equal(DensityMap.from_file(path).data, data)

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

    def test_a_sampling_that_symmetry_does_not_keep_stays_finite(self, tmp_path):
        path = write_mrc(
            tmp_path / "a.ccp4", random_data((34, 25, 23)), sampling=(23, 25, 35), space_group=92
        )
        assert not DensityMap.from_file(path).periodic

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
            (TEXT[:-4], "11 values"),
            (TEXT + "12", "13 values"),
            (TEXT.replace(" 7 ", " seven "), "cannot be read"),
            (TEXT.replace(" 7 ", " nan "), "NaN"),
            (TEXT.replace("2.5", "0"), "positive voxel size"),
            (TEXT.replace("2.5", "wide"), "cannot be read"),
            ("1 0 0 0 2 2", "cannot be read"),
            ("1 0 0 0 2 2 2", "0 values"),
            ("", "cannot be read"),
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
            (0, "i4", [0], "impossible size"),
            (0, "i4", [-6], "impossible size"),
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
            (52, "f4", [90, 90, 200], "angles"),
            (52, "f4", [20, 20, 120], "no volume"),
            (64, "i4", [1, 1, 3], "MAPC"),
            (64, "i4", [0, 0, 0], "MAPC"),
            (92, "i4", [80], "cut short"),
            (92, "i4", [-80], "cannot be read"),
            (196, "f4", [np.inf], "ORIGIN"),
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

    def test_stack_of_volumes(self, tmp_path):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)), sampling=(6, 5, 2), space_group=401)
        assert "stack" in read_error(path)

    @pytest.mark.parametrize("length", [0, 100, 1024, 1100])
    def test_cut_short(self, tmp_path, length):
        path = write_mrc(tmp_path / "a.mrc", random_data((4, 5, 6)))
        path.write_bytes(path.read_bytes()[:length])
        read_error(path)

    def test_compressed_and_cut_short(self, tmp_path):
        path = write_mrc(tmp_path / "a.mrc.gz", random_data((14, 15, 16)))
        path.write_bytes(path.read_bytes()[:-500])
        read_error(path)

    def test_not_a_map(self, tmp_path):
        path = tmp_path / "a.mrc"
        path.write_bytes(b"HEADER    HYDROLASE\n" * 200)
        assert "not an MRC or CCP4 map" in read_error(path)

    def test_missing_folder_and_suffix(self, tmp_path):
        assert "no such file" in read_error(tmp_path / "missing.mrc")
        (tmp_path / "folder.mrc").mkdir()
        assert "no such file" in read_error(tmp_path / "folder.mrc")
        path = tmp_path / "a.pdb"
        path.write_text("")
        assert ".situs" in read_error(path)


class TestConstruction:
    def test_properties(self):
        matrix = orthogonalization(TRICLINIC) / (10, 12, 9)
        density_map = DensityMap(np.ones((9, 12, 10)), matrix, [1, 2, 3])
        assert density_map.shape == (9, 12, 10)
        assert density_map.data.dtype == np.float32
        np.testing.assert_array_equal(density_map.size, [10, 12, 9])
        np.testing.assert_allclose(density_map.voxel_size, 2.0)
        np.testing.assert_allclose(density_map.cell, TRICLINIC)
        assert density_map.voxel_volume * 1080 == pytest.approx(gemmi.UnitCell(*TRICLINIC).volume)
        assert not density_map.is_orthogonal
        assert DensityMap(np.ones((1, 1, 1)), np.diag([1, 2, 3]), np.zeros(3)).is_orthogonal
        assert not DensityMap(np.ones((1, 1, 1)), np.diag([1, -2, 3]), np.zeros(3)).is_orthogonal

    def test_float32_data_is_not_copied(self):
        data = random_data((4, 5, 6))
        assert np.shares_memory(DensityMap(data, np.eye(3), np.zeros(3)).data, data)

    @pytest.mark.parametrize(
        ("data", "matrix", "origin", "part"),
        [
            (np.ones((2, 2)), np.eye(3), np.zeros(3), "shape (nz, ny, nx)"),
            (np.ones((0, 2, 2)), np.eye(3), np.zeros(3), "shape (nz, ny, nx)"),
            (np.ones((2, 2, 2)), np.ones(3), np.zeros(3), "matrix"),
            (np.ones((2, 2, 2)), np.eye(3), np.zeros(2), "origin"),
            (np.ones((2, 2, 2)), np.ones((3, 3)), np.zeros(3), "span"),
            (np.ones((2, 2, 2)), np.diag([1, 0, 1]), np.zeros(3), "span"),
            (np.ones((2, 2, 2)), np.eye(3), [np.nan, 0, 0], "finite"),
            (np.full((2, 2, 2), np.nan), np.eye(3), np.zeros(3), "NaN"),
        ],
    )
    def test_errors(self, data, matrix, origin, part):
        with pytest.raises(InputError, match=part.replace("(", r"\(").replace(")", r"\)")):
            DensityMap(data, matrix, origin)


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

    def test_same_map_same_bytes(self, tmp_path):
        density_map = DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3))
        density_map.write(tmp_path / "a.mrc")
        density_map.write(tmp_path / "b.mrc")
        assert (tmp_path / "a.mrc").read_bytes() == (tmp_path / "b.mrc").read_bytes()

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


class TestCrop:
    @pytest.mark.parametrize("matrix", [np.diag([1.0, 1.2, 1.5]), orthogonalization(TRICLINIC) / 20])
    def test_finite(self, matrix):
        density_map = DensityMap(random_data((20, 22, 24)), matrix, [5, -3, 2])
        around = density_map.origin + np.array([[10, 11, 9], [12, 10.5, 11.2]]) @ matrix.T
        part = density_map.crop(around, 2.5)
        offset = density_map.to_index(part.origin[None])[0]
        np.testing.assert_allclose(offset, np.rint(offset), atol=1e-9)
        i, j, k = np.rint(offset).astype(int)
        nz, ny, nx = part.shape
        np.testing.assert_array_equal(part.data, density_map.data[k : k + nz, j : j + ny, i : i + nx])
        assert not np.shares_memory(part.data, density_map.data)
        near = density_map.mask_around(around, 2.5)
        assert part.mask_around(around, 2.5).sum() == near.sum()

    def test_margin_takes_units_and_stops_at_the_edge(self):
        density_map = DensityMap(random_data((20, 22, 24)), np.eye(3), np.zeros(3))
        corner = density_map.crop(np.array([[1, 1, 1]]) * unit.angstrom, 0.3 * unit.nanometer)
        assert corner.shape == (5, 5, 5)
        np.testing.assert_array_equal(corner.origin, 0)

    def test_periodic_continues_across_borders(self):
        matrix = orthogonalization(TRICLINIC) / (10, 12, 9)
        density_map = DensityMap(random_data((9, 12, 10)), matrix, [1, 2, 3], periodic=True)
        around = density_map.origin + np.array([[-1.5, 13, 4]]) @ matrix.T
        part = density_map.crop(around, 12.0)
        assert not part.periodic and part.shape > density_map.shape
        points = points_inside(part)
        np.testing.assert_allclose(part.value_at(points), density_map.value_at(points), atol=1e-3)

    def test_errors(self):
        density_map = DensityMap(random_data((20, 22, 24)), np.eye(3), np.zeros(3))
        for around, margin, part in (
            ([[100, 0, 0]], 5, "outside"),
            ([[np.nan, 0, 0]], 5, "NaN"),
            (np.zeros((0, 3)), 5, "no positions"),
            ([[1, 1, 1]], -1, "margin"),
        ):
            with pytest.raises(InputError, match=part):
                density_map.crop(around, margin)


def gaussians(points, centers, sigma):
    return sum(np.exp(-((points - c) ** 2).sum(axis=-1) / (2 * sigma**2)) for c in centers)


def grid_points(density_map):
    k, j, i = np.meshgrid(*map(np.arange, density_map.shape), indexing="ij")
    return density_map.origin + np.stack([i, j, k], axis=-1) @ density_map.matrix.T


def gaussian_map(matrix, shape, sigma, origin=(3.0, -4.0, 5.0)):
    empty = DensityMap(np.zeros(shape), matrix, origin)
    middle = empty.origin + matrix @ (empty.size / 2)
    centers = middle + np.array([[0.3, -0.2, 0.1], [2.0, 1.0, -1.5]])
    return DensityMap(gaussians(grid_points(empty), centers, sigma), matrix, origin), centers


class TestResample:
    @pytest.mark.parametrize(
        "matrix", [np.diag([1.0, 1.1, 1.2]), orthogonalization(TRICLINIC) / (20, 22, 17)]
    )
    @pytest.mark.parametrize("periodic", [False, True])
    @pytest.mark.parametrize("voxel_size", [0.57, 0.9, 1.4])
    def test_density_stays_where_it_is(self, matrix, periodic, voxel_size):
        density_map, centers = gaussian_map(matrix, (30, 31, 32), sigma=1.8)
        density_map = DensityMap(density_map.data, matrix, density_map.origin, periodic)
        resampled = density_map.resample(voxel_size * unit.angstrom)
        assert resampled.periodic == periodic and resampled.data.dtype == np.float32
        assert (resampled.voxel_size <= voxel_size + 1e-9).all()
        np.testing.assert_allclose(resampled.matrix * resampled.size, matrix * density_map.size)
        np.testing.assert_array_equal(resampled.origin, density_map.origin)
        np.testing.assert_allclose(resampled.data, gaussians(grid_points(resampled), centers, 1.8), atol=2e-3)

    def test_plane_wave_of_a_crystal_is_exact(self):
        matrix = orthogonalization(TRICLINIC) / (20, 22, 18)
        empty = DensityMap(np.zeros((18, 22, 20)), matrix, np.zeros(3), periodic=True)

        def wave(density_map):
            index = density_map.to_index(grid_points(density_map)).reshape(*density_map.shape, 3)
            return np.cos(2 * np.pi * (index / density_map.size) @ [2, -3, 1] + 0.4)

        fine = DensityMap(wave(empty), matrix, np.zeros(3), periodic=True).resample(0.6)
        np.testing.assert_allclose(fine.data, wave(fine), atol=1e-5)

    def test_opposite_edges_of_a_finite_map_do_not_ring(self):
        empty = DensityMap(np.zeros((12, 12, 30)), np.eye(3), np.zeros(3))
        ramp = DensityMap(grid_points(empty)[..., 0], np.eye(3), np.zeros(3))
        fine = ramp.resample(0.5)
        inside = grid_points(fine)[..., 0] <= 29
        error = np.abs(fine.data - grid_points(fine)[..., 0])[inside]
        assert error.max() < 0.1
        assert fine.data.max() < 29.2 and fine.data.min() > -0.2

    def test_the_size_a_map_has_changes_nothing(self):
        density_map = DensityMap(random_data((13, 17, 19)), np.diag([1.05, 1.05, 1.05]), np.zeros(3))
        np.testing.assert_array_equal(density_map.resample(1.05).data, density_map.data)

    def test_sizes_suit_the_fourier_transform(self):
        density_map = DensityMap(random_data((13, 17, 19)), np.eye(3), np.zeros(3))
        for n in density_map.resample([0.53, 0.71, 0.91]).shape:
            for prime in (2, 3, 5):
                while n % prime == 0:
                    n //= prime
            assert n == 1

    @pytest.mark.parametrize("voxel_size", [0, -1, np.nan])
    def test_errors(self, voxel_size):
        with pytest.raises(InputError, match="voxel_size"):
            DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3)).resample(voxel_size)


class TestGaussianFilter:
    @pytest.mark.parametrize(
        "matrix", [np.diag([1.0, 1.1, 1.2]), orthogonalization(TRICLINIC) / (20, 22, 17)]
    )
    @pytest.mark.parametrize("periodic", [False, True])
    def test_a_gaussian_widens_as_it_should(self, matrix, periodic):
        density_map, centers = gaussian_map(matrix, (32, 32, 32), sigma=1.5)
        smooth = DensityMap(density_map.data, matrix, density_map.origin, periodic).gaussian_filter(1.0)
        wide = np.sqrt(1.5**2 + 1.0)
        expected = (1.5 / wide) ** 3 * gaussians(grid_points(density_map), centers, wide)
        np.testing.assert_allclose(smooth.data, expected, atol=2e-3)
        assert smooth.periodic == periodic

    def test_periodic_wraps_and_finite_does_not(self):
        data = np.zeros((10, 10, 10), np.float32)
        data[5, 5, 0] = 1
        for periodic in (True, False):
            smooth = DensityMap(data, np.eye(3), np.zeros(3), periodic).gaussian_filter(1.5).data
            assert smooth.sum() == pytest.approx(1, abs=1e-4)
            assert (smooth[5, 5, 9] > 0.5 * smooth[5, 5, 1]) == periodic

    def test_errors(self):
        with pytest.raises(InputError, match="sigma"):
            DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3)).gaussian_filter(-1)


def test_normalized():
    normal = DensityMap(random_data((14, 15, 16)) + 1000, np.eye(3), np.zeros(3)).normalized()
    assert normal.data.mean(dtype=np.float64) == pytest.approx(0, abs=1e-5)
    assert normal.data.std(dtype=np.float64) == pytest.approx(1, abs=1e-5)
    with pytest.raises(InputError, match="one value"):
        DensityMap(np.ones((4, 5, 6)), np.eye(3), np.zeros(3)).normalized()


class TestMask:
    @pytest.mark.parametrize(
        "matrix", [np.diag([1.0, 1.1, 1.2]), orthogonalization(TRICLINIC) / (20, 22, 17)]
    )
    @pytest.mark.parametrize("periodic", [False, True])
    @pytest.mark.parametrize("radius", [0.4, 3.0, 7.0])
    def test_every_distance(self, matrix, periodic, radius):
        density_map = DensityMap(np.zeros((9, 10, 11)), matrix, [3, -4, 5], periodic)
        index = np.random.default_rng(2).uniform(-6, density_map.size + 6, (15, 3))
        positions = density_map.origin + index @ matrix.T
        images = (
            np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), axis=-1).reshape(-1, 3)
            if periodic
            else np.zeros((1, 3))
        )
        expected = np.zeros(density_map.shape, dtype=bool)
        for shift in images @ (matrix * density_map.size).T:
            for position in positions + shift:
                expected |= ((grid_points(density_map) - position) ** 2).sum(axis=-1) <= radius**2
        np.testing.assert_array_equal(density_map.mask_around(positions, radius), expected)
        assert expected.any()

    def test_sphere_around_a_grid_point_includes_its_surface(self):
        density_map = DensityMap(np.zeros((9, 9, 9)), np.eye(3) * 1.05, np.zeros(3))
        mask = density_map.mask_around(np.full((1, 3), 4 * 1.05), 2 * 1.05)
        assert mask.sum() == 33

    def test_nothing_near(self):
        density_map = DensityMap(np.zeros((9, 9, 9)), np.eye(3), np.zeros(3))
        assert not density_map.mask_around([[1e6, 0, 0]], 3.0).any()
        assert density_map.mask_around([[1e6, 0, 0], [4, 4, 4]], 0.5 * unit.nanometer).any()

    def test_errors(self):
        density_map = DensityMap(np.zeros((9, 9, 9)), np.eye(3), np.zeros(3))
        with pytest.raises(InputError, match="radius"):
            density_map.mask_around([[1, 1, 1]], -1)
        with pytest.raises(InputError, match="NaN"):
            density_map.mask_around([[1, np.nan, 1]], 1)


class TestValueAt:
    @pytest.mark.parametrize("cell", [(20.0, 24.0, 18.0, 90.0, 90.0, 90.0), TRICLINIC])
    def test_periodic_as_gemmi(self, cell):
        grid = gemmi.FloatGrid(random_data((10, 12, 9)).astype(np.float32))
        grid.set_unit_cell(gemmi.UnitCell(*cell))
        density_map = DensityMap(
            grid.array.T, orthogonalization(cell) / (10, 12, 9), np.zeros(3), periodic=True
        )
        points = np.random.default_rng(4).uniform(-40, 60, (100, 3))
        expected = [grid.interpolate_value(gemmi.Position(*point)) for point in points]
        np.testing.assert_allclose(density_map.value_at(points), expected, atol=1e-3)

    def test_finite(self):
        density_map = DensityMap(random_data((4, 5, 6)), np.eye(3) * 1.05, np.array([0.1, 0.2, 0.3]))
        np.testing.assert_allclose(
            density_map.value_at(grid_points(density_map).reshape(-1, 3)),
            density_map.data.reshape(-1),
            atol=1e-4,
        )
        outside = [[0.05, 1, 1], [5.5, 1, 1], [1, 1, 4], [np.nan, 1, 1]]
        assert np.isnan(density_map.value_at(outside)).all()
        assert np.isfinite(density_map.value_at(np.array([[0.1, 0.1, 0.1]]) * unit.nanometer)).all()

    def test_grid_point_of_a_crystal(self):
        density_map = DensityMap(random_data((4, 5, 6)), np.eye(3), np.zeros(3), periodic=True)
        assert density_map.value_at([[-1, -2, -3]])[0] == density_map.data[1, 3, 5]
        assert np.isnan(density_map.value_at([[np.inf, 0, 0]])[0])


def chain_of(*symbols):
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain())
    for symbol in symbols:
        topology.addAtom(symbol, app.Element.getBySymbol(symbol) if symbol else None, residue)
    return topology


def analytic_density(symbol, distances, b, d, table):
    """Integrate the scattering of an atom up to resolution d: what a perfect map of it holds at these distances."""
    coefficients = getattr(gemmi.Element(symbol), table)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total = np.zeros_like(distances)
    for s, weight in zip((nodes + 1) / (2 * d), weights / (2 * d)):
        shell = 4 * np.pi * s**2 * coefficients.calculate_sf(s**2 / 4) * np.exp(-b * s**2 / 4)
        total += weight * shell * np.sinc(2 * s * distances)
    return total


class TestSimulate:
    POSITIONS = np.array([[0.13, 0.2, 0.3], [1.9, 0.4, -0.2], [-2.2, 3.1, 1.4]])

    @pytest.mark.parametrize("scattering", ["electron", "xray"])
    @pytest.mark.parametrize(
        ("d", "voxel_size", "b"), [(2.0, 0.5, None), (3.0, 1.0, None), (3.0, 1.45, None), (5.0, 1.0, 20.0)]
    )
    def test_integral_over_the_form_factors(self, scattering, d, voxel_size, b):
        topology = chain_of("C", "O", "S")
        density_map = DensityMap.simulate(
            topology, self.POSITIONS, d, voxel_size, b_factors=b, scattering=scattering
        )
        np.testing.assert_allclose(density_map.voxel_size, voxel_size)
        table = "c4322" if scattering == "electron" else "it92"
        points = grid_points(density_map)
        expected = sum(
            analytic_density(symbol, np.linalg.norm(points - x, axis=-1), b or 8 * d, d, table)
            for symbol, x in zip("COS", self.POSITIONS)
        )
        near = density_map.mask_around(self.POSITIONS, 3.0)
        np.testing.assert_allclose(density_map.data[near], expected[near], atol=0.02 * expected.max())
        assert np.corrcoef(density_map.data[near], expected[near])[0, 1] > 0.9995

    def test_box_reaches_the_margin_beyond_the_atoms(self):
        density_map = DensityMap.simulate(
            chain_of("C", "O", "S"), self.POSITIONS / 10 * unit.nanometer, 4 * unit.angstrom, margin=7
        )
        np.testing.assert_allclose(density_map.voxel_size, 1.0)
        assert (density_map.origin <= self.POSITIONS.min(axis=0) - 7).all()
        end = density_map.origin + density_map.size - 1
        assert (end >= self.POSITIONS.max(axis=0) + 7).all()

    @pytest.mark.parametrize(
        "matrix", [np.diag([0.9, 1.0, 1.1]), orthogonalization(TRICLINIC) / (20, 22, 18)]
    )
    def test_on_the_grid_of_another_map(self, matrix):
        other = DensityMap(np.zeros((20, 21, 22)), matrix, [-9, -10, -8.5])
        density_map = DensityMap.simulate(chain_of("C", "O", "S"), self.POSITIONS, 4.0, like=other)
        assert density_map.shape == other.shape and not other.data.any()
        expected = sum(
            analytic_density(s, np.linalg.norm(grid_points(other) - x, axis=-1), 32.0, 4.0, "c4322")
            for s, x in zip("COS", self.POSITIONS)
        )
        near = density_map.mask_around(self.POSITIONS, 3.0)
        np.testing.assert_allclose(density_map.data[near], expected[near], atol=0.02 * expected.max())
        assert np.corrcoef(density_map.data[near], expected[near])[0, 1] > 0.9995

    def test_a_finite_grid_cuts_off_and_a_crystal_wraps(self):
        data = np.zeros((40, 40, 40))
        inside = np.array([[20.0, 20.0, 20.0]])
        corner = np.array([[0.0, 0.0, 0.0]])
        topology = chain_of("C")
        crystal = DensityMap(data, np.eye(3), np.zeros(3), periodic=True)
        in_middle = DensityMap.simulate(topology, inside, 4.0, like=crystal)
        at_corner = DensityMap.simulate(topology, corner, 4.0, like=crystal)
        np.testing.assert_allclose(
            np.roll(in_middle.data, (20, 20, 20), (0, 1, 2)), at_corner.data, atol=1e-4
        )
        finite = DensityMap.simulate(topology, corner, 4.0, like=DensityMap(data, np.eye(3), np.zeros(3)))
        np.testing.assert_allclose(finite.data[:8, :8, :8], at_corner.data[:8, :8, :8], atol=1e-4)
        assert not finite.data[-3:].any()
        outside = DensityMap.simulate(topology, corner - 500, 4.0, like=finite)
        assert not outside.data.any()

    def test_noise_is_scaled_seeded_and_band_limited(self):
        rng = np.random.default_rng(0)
        positions = rng.uniform(0, 20, (100, 3))
        topology = chain_of(*["C"] * 100)
        clean = DensityMap.simulate(topology, positions, 5.0, 1.0)
        noisy = DensityMap.simulate(topology, positions, 5.0, 1.0, noise=0.5, seed=3)
        noise = noisy.data - clean.data
        inside = clean.data[clean.mask_around(positions, 3.0)]
        assert noise.std() == pytest.approx(0.5 * inside.std(), rel=1e-3)
        frequencies = np.meshgrid(*[np.fft.fftfreq(n) for n in noise.shape], indexing="ij")
        beyond = sum(f**2 for f in frequencies) > 1 / 4.9**2
        assert np.abs(np.fft.fftn(noise))[beyond].max() < 1e-3 * np.abs(np.fft.fftn(noise)).max()
        again = DensityMap.simulate(topology, positions, 5.0, 1.0, noise=0.5, seed=3)
        np.testing.assert_array_equal(again.data, noisy.data)
        assert not np.array_equal(
            DensityMap.simulate(topology, positions, 5.0, 1.0, noise=0.5, seed=4).data, noisy.data
        )

    def test_noise_needs_density_to_scale_it(self):
        empty = DensityMap(np.zeros((9, 9, 9)), np.eye(3), [500, 0, 0])
        with pytest.raises(InputError, match="noise"):
            DensityMap.simulate(chain_of("C", "O", "S"), self.POSITIONS, 4.0, like=empty, noise=0.1)

    def test_b_factors_of_every_atom_and_virtual_sites(self):
        topology = chain_of("C", None, "C")
        positions = np.array([[0.0, 0, 0], [4, 0, 0], [8, 0, 0]])
        density_map = DensityMap.simulate(topology, positions, 2.0, 0.5, b_factors=[10, 10, 40])
        sharp, nothing, blurred = density_map.value_at(positions)
        assert sharp > 1.5 * blurred and abs(nothing) < 0.2 * blurred

    @pytest.mark.parametrize(
        ("arguments", "part"),
        [
            ({"resolution": 0}, "resolution"),
            ({"resolution": np.nan}, "resolution"),
            ({"voxel_size": -1}, "voxel_size"),
            ({"scattering": "neutron"}, "scattering"),
            ({"b_factors": [1, 2]}, "b_factors"),
            ({"b_factors": -5}, "b_factors"),
            ({"noise": -1}, "noise"),
            ({"margin": np.nan}, "margin"),
            ({"positions": np.zeros((2, 3))}, "2 positions"),
            ({"positions": np.full((3, 3), np.nan)}, "NaN"),
            ({"positions": np.diag([0, 1e5, 1e5])}, "coordinates"),
            ({"topology": chain_of("C", "O", "Es")}, "form factor"),
            ({"topology": chain_of(None, None, None)}, "no atom with an element"),
            ({"like": DensityMap(np.zeros((2, 2, 2)), np.eye(3), np.zeros(3))}, "like"),
        ],
    )
    def test_errors(self, arguments, part):
        usual = {
            "topology": chain_of("C", "O", "S"),
            "positions": self.POSITIONS,
            "resolution": 3,
            "voxel_size": 1,
        }
        with pytest.raises(InputError, match=part):
            DensityMap.simulate(**(usual | arguments))


def test_real_maps_are_read_without_a_warning(data_dir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = DensityMap.from_file(data_dir / "xraymap_3pqr_R32" / "3pqr.ccp4.gz")
        bytes_ = DensityMap.from_file(data_dir / "xraymap_3pqr_R32" / "3pqr-mode0.ccp4")
    assert plain.shape == bytes_.shape == (59, 69, 100)
    assert np.corrcoef(plain.data.reshape(-1), bytes_.data.reshape(-1))[0, 1] > 0.99


@pytest.mark.parametrize(
    "name",
    [
        "emd6187_kinesin/chain_K_box.ccp4",
        "xraymap_P41212_bigendian/map.ccp4",
        "xraymap_3pqr_R32/3pqr.ccp4.gz",
        "emd21457_ntd/emd_21457_seg_nstart.mrc",
    ],
)
def test_real_maps_have_their_values_where_gemmi_has_them(data_dir, name):
    density_map = DensityMap.from_file(data_dir / name)
    points = points_inside(density_map)
    scale = density_map.data.std()
    np.testing.assert_allclose(
        density_map.value_at(points), gemmi_values(data_dir / name, points), atol=1e-4 * scale, rtol=1e-3
    )


def test_structure_factors_give_the_map_that_gemmi_makes(data_dir):
    path = data_dir / "xray_1g8a_P21" / "composite_omit_map.mtz"
    density_map = DensityMap.from_file(path)
    grid = gemmi.read_mtz_file(str(path)).transform_f_phi_to_map("2FOFCWT", "PH2FOFCWT", sample_rate=3)
    points = np.random.default_rng(0).uniform(-100, 100, (50, 3))
    expected = [grid.interpolate_value(gemmi.Position(*point)) for point in points]
    np.testing.assert_allclose(density_map.value_at(points), expected, atol=1e-3 * density_map.data.std())
