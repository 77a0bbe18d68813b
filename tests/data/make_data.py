"""Cut the small maps and models of this folder out of deposited ones: `python make_data.py FOLDER`.

FOLDER holds the whole maps and models under the same names (README.md names their entries). Voxels and coordinates are those that
were deposited: of models some residues are kept, line by line as they came, and of maps a box, with the header as it came but for
what a box changes. Running it again gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import gemmi
import numpy as np

HERE = Path(__file__).parent
WORDS = 256  # of 4 bytes in the header of a CCP4 or MRC map
MODES = {0: "i1", 2: "f4"}
MARGIN = 4.0

# What is kept of an mmCIF file: what says what the molecule is, and how it was determined.
CATEGORIES = (
    "_entry.",
    "_cell.",
    "_symmetry.",
    "_entity.",
    "_entity_poly.",
    "_entity_poly_seq.",
    "_struct.",
    "_struct_asym.",
    "_struct_conn.",
    "_struct_conf.",
    "_chem_comp.",
    "_chem_comp_atom.",
    "_chem_comp_bond.",
    "_exptl.",
    "_refine.",
    "_em_3d_reconstruction.",
    "_atom_site.",
)


@dataclass(frozen=True)
class Atom:
    """An atom as its file names it."""

    name: str
    residue: str
    chain: str
    number: int
    element: str
    position: tuple[float, float, float]


Choice = Callable[[Atom], bool]


def residues(first: int, last: int, *, ligands: Iterable[str] = (), numbers: Iterable[int] = ()) -> Choice:
    """Return a choice of the atoms of a range of residues, of ligands by their names and of residues by their numbers."""
    ligands, numbers = set(ligands), set(numbers)

    def chosen(atom: Atom) -> bool:
        if atom.element == "H":
            return False
        if atom.residue in ligands:
            return not numbers or atom.number in numbers
        return first <= atom.number <= last

    return chosen


def heavy(chosen: Choice) -> Choice:
    """Return the same choice without hydrogens."""
    return lambda atom: chosen(atom) and atom.element != "H"


def read_text(path: Path) -> str:
    """Return what a file says, packed or not."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def pdb_atom(line: str) -> Atom:
    """Read an ATOM or HETATM line of a PDB file."""
    return Atom(
        name=line[12:16].strip(),
        residue=line[17:20].strip(),
        chain=line[21].strip(),
        number=int(line[22:26]),
        element=line[76:78].strip(),
        position=(float(line[30:38]), float(line[38:46]), float(line[46:54])),
    )


def positions_of(source: Path, chosen: Choice) -> np.ndarray:
    """Return the positions (n, 3) of the chosen atoms of a PDB file, in Å."""
    lines = (line for line in source.read_text().splitlines() if line.startswith(("ATOM", "HETATM")))
    return np.array([atom.position for atom in map(pdb_atom, lines) if chosen(atom)])


def cut_pdb(source: Path, target: Path, chosen: Choice) -> None:
    """Write the chosen atoms of a PDB file with all that stands before its atoms."""
    lines = []
    for line in read_text(source).splitlines():
        record = line[:6].strip()
        if record in ("ATOM", "HETATM"):
            if not chosen(pdb_atom(line)):
                continue
        elif record in ("ANISOU", "CONECT", "MASTER") or (record == "TER" and lines[-1].startswith("TER")):
            continue
        lines.append(line)
    target.write_text("\n".join(lines) + "\n")


def cut_cif(source: Path, target: Path, chosen: Choice) -> None:
    """Write the chosen atoms of an mmCIF file."""
    document = gemmi.cif.read(str(source))
    block = document.sole_block()
    for item in list(block):
        tags = item.loop.tags if item.loop is not None else item.pair[:1] if item.pair is not None else [""]
        if not tags[0].startswith(CATEGORIES):
            item.erase()
    columns = ("label_atom_id", "auth_comp_id", "auth_asym_id", "auth_seq_id", "type_symbol")
    table = block.find("_atom_site.", [*columns, "Cartn_x", "Cartn_y", "Cartn_z"])
    for k in reversed(range(len(table))):
        *words, x, y, z = table[k]
        name, residue, chain, number, element = (gemmi.cif.as_string(word) for word in words)
        if not chosen(Atom(name, residue, chain, int(number), element, (float(x), float(y), float(z)))):
            table.remove_row(k)
    document.write_file(str(target))


def cut_map(
    source: Path, target: Path, around: np.ndarray, from_zero: bool = False, unplaced: bool = False
) -> None:
    """Write the voxels of a map within 4 Å of the box about positions (n, 3), in Å.

    A map that its header places by ORIGIN has its ORIGIN moved, any other its NSTART, as a part of the cell that it was
    a part of. With `from_zero` the box begins where the map begins, so that its header need not place it; with `unplaced`
    its header does not place it either, though it should.
    """
    packed = source.suffix == ".gz"
    content = gzip.decompress(source.read_bytes()) if packed else source.read_bytes()
    order = "<" if content[212] == 0x44 else ">"
    header = np.frombuffer(content[: 4 * WORDS], order + "i4").copy()
    reals = header.view(order + "f4")
    shape, mode, starts = header[0:3].copy(), int(header[3]), header[4:7].copy()
    intervals, axes, extra = header[7:10].copy(), header[16:19] - 1, int(header[23])
    data = np.frombuffer(content[4 * WORDS + extra :], order + MODES[mode]).reshape(shape[::-1])

    # Positions in voxels along columns, rows and sections, from the first voxel of the file.
    cell = gemmi.UnitCell(*reals[10:16].tolist())
    origin = reals[49:52].astype(float)
    by_origin = bool(origin.any())
    fractions = np.array(
        [cell.fractionalize(gemmi.Position(*(place - origin * by_origin))).tolist() for place in around]
    )
    places = (fractions * intervals)[:, axes] - starts * (not by_origin)
    reach = MARGIN * intervals[axes] / np.array(cell.parameters[:3])[axes]
    first = np.maximum(np.floor(places.min(axis=0) - reach), 0).astype(int) * (not from_zero)
    last = np.minimum(np.ceil(places.max(axis=0) + reach), shape - 1).astype(int)
    box = data[tuple(slice(a, b + 1) for a, b in zip(first[::-1], last[::-1], strict=True))]

    header[0:3] = box.shape[::-1]
    alone = by_origin or from_zero or unplaced or ((intervals[axes] == shape).all() and starts.any())
    if alone:
        # A box of its own: what the header calls the cell is as large as the box.
        step = np.array(cell.parameters[:3]) / intervals
        header[7:10][axes] = box.shape[::-1]
        reals[10:13] = step * header[7:10]
        if by_origin:
            moved = np.zeros(3)
            moved[axes] = first
            reals[49:52] = origin + moved * step
    if not by_origin and not unplaced:
        header[4:7] = starts + first
    if mode == 2:  # of bytes the header has the statistics of what they were made of
        values = box.astype(np.float64)
        reals[19:22] = values.min(), values.max(), values.mean()
        reals[54] = values.std()
    cut = header.tobytes() + content[4 * WORDS : 4 * WORDS + extra] + np.ascontiguousarray(box).tobytes()
    target.write_bytes(gzip.compress(cut, mtime=0) if packed else cut)


def big_endian(content: bytes) -> bytes:
    """Return a little-endian map of mode 2 without symmetry records as a machine of the other byte order writes it."""
    words = np.frombuffer(content, "<u4").astype(">u4")
    # Letters have no byte order; the machine stamp says what the others have.
    swapped = bytearray(words.tobytes())
    swapped[208:212], swapped[212:216], swapped[224:1024] = b"MAP ", b"\x11\x11\0\0", content[224:1024]
    return bytes(swapped)


def cut_mtz(source: Path, target: Path, resolution: float) -> None:
    """Write the structure factors up to a resolution in Å."""
    mtz = gemmi.read_mtz_file(str(source))
    mtz.set_data(np.array(mtz)[mtz.make_d_array() >= resolution])
    mtz.history = []
    mtz.write_to_file(str(target))


def main(source: Path, target: Path) -> None:
    """Make all files from the folder of the whole ones."""

    def paths(name: str) -> tuple[Path, Path]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        return source / name, target / name

    def model(name: str, chosen: Choice) -> np.ndarray:
        whole, cut = paths(name)
        cut_pdb(whole, cut, chosen)
        return positions_of(cut, chosen)

    globin = residues(1, 110, ligands=("HEM", "HOH"))
    cut_cif(*paths("emd3488_5ni1/5ni1_updated.cif"), globin)
    model("emd3488_5ni1/5me2.pdb", globin)
    dimer = positions_of(source / "emd3488_5ni1/5me2.pdb", lambda atom: globin(atom) and atom.chain in "AB")
    cut_map(*paths("emd3488_5ni1/emd_3488.mrc"), dimer)

    native = model("emd5925_frag/5925_native.pdb", residues(1, 94))
    cut_map(*paths("emd5925_frag/emd5925.mrc.gz"), native)

    native = model("emd6374_frag/6374_native.pdb", residues(1, 180))
    cut_map(*paths("emd6374_frag/emd6374.mrc.gz"), native)

    deposited = model("emd6187_kinesin/chain_K_box_complete.pdb", residues(5, 120))
    motor = residues(3, 120, ligands=("ADP", "MG", "ACT"))
    model(
        "emd6187_kinesin/1bg2_K_fitted.pdb",
        lambda atom: motor(atom) or (atom.residue == "HOH" and atom.number <= 540),
    )
    cut_map(*paths("emd6187_kinesin/chain_K_box.ccp4"), deposited, from_zero=True)

    model("emd21457_ntd/6vyb_Ndom.pdb", residues(27, 285, ligands=("NAG",)))
    part = positions_of(source / "emd21457_ntd/6vyb_Ndom.pdb", residues(100, 180))
    for placed in ("", "_nstart"):
        cut_map(*paths(f"emd21457_ntd/emd_21457_seg{placed}.mrc"), part)
    part -= (162.75, 231.0, 204.75)  # the ORIGIN that this copy lacks
    cut_map(*paths("emd21457_ntd/emd_21457_seg_orig0.mrc"), part, unplaced=True)

    virus = model("qr_6i5a/6i5a_box_complete.pdb", residues(2, 80))
    cut_map(*paths("qr_6i5a/6i5a_box.ccp4"), virus, from_zero=True)

    model("xraymap_3pqr_R32/3pqr.pdb", lambda atom: atom.chain == "A")
    part = positions_of(source / "xraymap_3pqr_R32/3pqr.pdb", residues(100, 220))
    for name in ("3pqr.ccp4.gz", "3pqr-mode0.ccp4"):
        cut_map(*paths(f"xraymap_3pqr_R32/{name}"), part)
    little, big = (target / "xraymap_3pqr_R32" / name for name in ("3pqr.ccp4.gz", "3pqr-bigendian.ccp4"))
    big.write_bytes(big_endian(gzip.decompress(little.read_bytes())))

    zoo = target / "zoo"
    zoo.mkdir(exist_ok=True)
    cut_pdb(source / "zoo/5vav_cyclic.pdb.gz", zoo / "5vav_cyclic.pdb", residues(1, 14))
    cut_pdb(
        source / "zoo/1grm_gramicidin_Damino.pdb.gz",
        zoo / "1grm_gramicidin.pdb",
        lambda atom: atom.chain == "A",
    )
    cut_pdb(source / "zoo/104D_v30.pdb.gz", zoo / "104d_junction.pdb", heavy(residues(3, 6)))
    cut_pdb(
        source / "zoo/1bna_dna.pdb.gz",
        zoo / "1bna_strand.pdb",
        lambda atom: atom.chain == "A" and atom.number < 6,
    )
    cut_pdb(source / "zoo/1bna_dna.pdb.gz", zoo / "1bna_duplex.pdb", residues(1, 24))
    cut_pdb(source / "zoo/4p5j_rna.pdb.gz", zoo / "4p5j_rna.pdb", residues(1, 83))
    cut_cif(source / "zoo/1ema.cif.gz", zoo / "1ema_chromophore.cif", residues(63, 69))
    cut_pdb(
        source / "zoo/1ejg_crambin_0.5A.pdb.gz",
        zoo / "1ejg_microheterogeneity.pdb",
        lambda atom: 21 <= atom.number <= 26 and atom.element != "H",
    )
    cut_pdb(
        source / "zoo/3zw1_glycan.pdb.gz",
        zoo / "3zw1_anomers.pdb",
        lambda atom: atom.chain == "E" or (atom.residue == "GLA" and atom.number == 100),
    )
    cut_cif(
        source / "zoo/1pfe_echinomycin_dna.cif.gz",
        zoo / "1pfe_backbone.cif",
        lambda atom: atom.chain == "A" and 1 <= atom.number <= 3,
    )

    model("xray_1g8a_P21/1G8A_refined.pdb", residues(108, 300))
    cut_mtz(*paths("xray_1g8a_P21/composite_omit_map.mtz"), 1.8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the whole maps and models")
    main(parser.parse_args().folder, HERE)
