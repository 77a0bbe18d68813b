"""Find the flat groups of a model: which atoms lie in one plane, from topology to atom indices.

Four sources, in this order for each residue:

1. a restraint dictionary of the user's (CCP4/REFMAC, AceDRG: ``_chem_comp_plane_atom`` with its σ);
2. the tables below, for amino acids, nucleotides, their common modifications, and haem;
3. a wwPDB component file of the user's (``_chem_comp_bond`` with orders and aromatic flags);
4. the bonded topology itself: conjugated rings, double bonds and trigonal centres.

Peptide groups and C-termini come from the bonds between residues, so that no plane crosses a gap.

A group is flat where conjugation holds it so. Hydrogens on its trigonal atoms are members where the model has
them; hydrogens that turn about a single bond are not (methyl, the hydroxyl of Tyr, a protonated carboxylate).
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from openmm.app import Topology
from openmm.app import topology as bond_types
from openmm.app.topology import Residue
from scipy.spatial import cKDTree

from openmm_density.errors import InputError
from openmm_density.units import in_angstrom, positions_in_angstrom

SMALLEST_PLANE = 4
"""Three atoms are always flat."""

CLOSEST_GAP = 3.0
"""Å; a C–N pair that the bond list joins but that lies farther apart is a chain break."""

LONGEST_UNLISTED_PEPTIDE_BOND = 2.0
"""Å; consecutive residues closer than this are joined although the bond list does not say so."""

_WITHOUT_FLAT_SIDE_CHAIN = (
    *("ALA", "CYS", "GLY", "ILE", "LEU", "LYS", "MET", "PRO", "SER", "THR", "VAL", "UNK"),
    *("MSE", "SEC", "SEP", "TPO", "HYP", "M3L", "MLY", "MLZ", "CSO", "CSD", "CSX", "OCS", "CME", "CAS"),
    *("SAR", "ORN", "NLE", "ABA", "AIB", "NVA", "DAB"),
    *("ACE", "FOR", "NH2", "NME", "NMA"),
)

# Every row starts with the sp3 atom by which the group hangs; nothing beyond that atom is flat with it.
_SIDE_CHAINS: dict[str, tuple[tuple[str, str], ...]] = {
    "ARG": (("guanidinium", "CD NE CZ NH1 NH2 HE HH11 HH12 HH21 HH22"),),
    "ASN": (("side chain", "CB CG OD1 ND2 HD21 HD22"),),
    "ASP": (("carboxylate", "CB CG OD1 OD2"),),
    "GLN": (("side chain", "CG CD OE1 NE2 HE21 HE22"),),
    "GLU": (("carboxylate", "CG CD OE1 OE2"),),
    "HIS": (("ring", "CB CG ND1 CD2 CE1 NE2 HD1 HD2 HE1 HE2"),),
    "PHE": (("ring", "CB CG CD1 CD2 CE1 CE2 CZ HD1 HD2 HE1 HE2 HZ"),),
    "TRP": (("ring", "CB CG CD1 CD2 NE1 CE2 CE3 CZ2 CZ3 CH2 HD1 HE1 HE3 HZ2 HZ3 HH2"),),
    "TYR": (("ring", "CB CG CD1 CD2 CE1 CE2 CZ OH HD1 HD2 HE1 HE2"),),
    "PCA": (("side chain", "CA N CD OE CG H HN"),),
    "FME": (("side chain", "CA N CN O1 H HN HCN"),),
    "ALY": (("side chain", "CE NZ CH OH CH3 HZ"),),
    "KCX": (("side chain", "CE NZ CX OQ1 OQ2 HZ"),),
    "CGU": (("carboxylate", "CG CD1 OE11 OE12"), ("carboxylate", "CG CD2 OE21 OE22")),
}
_SIDE_CHAINS |= dict.fromkeys(_WITHOUT_FLAT_SIDE_CHAIN, ())

# residue: (amino acid whose groups it has, atoms that its modification adds to the plane)
_MODIFIED_AMINO_ACIDS: dict[str, tuple[str, str]] = {
    "PTR": ("TYR", ""),
    "TYS": ("TYR", ""),
    "HIC": ("HIS", "CZ"),
    "MHS": ("HIS", "CM"),
    "NEP": ("HIS", "P"),
    "2MR": ("ARG", "CQ1 CQ2"),
    "DA2": ("ARG", "CQ1 CQ2"),
    "PHD": ("ASP", ""),
    "BFD": ("ASP", ""),
    "MEN": ("ASN", "CE2"),
    "MEQ": ("GLN", "CH"),
}

# The names that CHARMM, Amber, GROMACS and the D-amino acids of the wwPDB give to the same flat groups.
_AMINO_ACID_SYNONYMS: dict[str, str] = {
    "ARG": "ARN DAR",
    "ASN": "DSG",
    "ASP": "ASH ASPP ASPH DAS",
    "GLN": "DGN",
    "GLU": "GLH GLUP GLUH DGL",
    "HIS": "HID HIE HIP HSD HSE HSP HISA HISB HISH HISD HISE DHI",
    "PHE": "DPN",
    "TRP": "DTR",
    "TYR": "TYM DTY",
    "ALA": "DAL",
    "CYS": "CYX CYM CYS2 CYSH DCY",
    "ILE": "DIL",
    "LEU": "DLE",
    "LYS": "LYN LYSN LSN DLY",
    "MET": "MED",
    "PRO": "DPR",
    "SER": "DSN",
    "THR": "DTH",
    "VAL": "DVA",
    "HYP": "HZP HY3",
}

_PROLINES = frozenset(["PRO", "DPR", "HYP", "HZP", "HY3"])

_BASES: dict[str, str] = {
    "A": "C1' N9 C8 N7 C5 C6 N6 N1 C2 N3 C4 H8 H61 H62 H2",
    "G": "C1' N9 C8 N7 C5 C6 O6 N1 C2 N2 N3 C4 H8 H1 H21 H22",
    "I": "C1' N9 C8 N7 C5 C6 O6 N1 C2 N3 C4 H8 H1 H2",
    "C": "C1' N1 C2 O2 N3 C4 N4 C5 C6 H41 H42 H5 H6",
    "U": "C1' N1 C2 O2 N3 C4 O4 C5 C6 H3 H5 H6",
    "T": "C1' N1 C2 O2 N3 C4 O4 C5 C7 C6 H3 H6",
}

# DA5, RA3, AN: Amber writes the strand's end into the residue's name.
_BASE_SYNONYMS: dict[str, str] = {
    base: " ".join(f"{stem}{end}" for stem in stems.split() for end in ("", "5", "3", "N")) + " " + others
    for base, stems, others in (
        ("A", "A DA RA", "ADE A2M AMP ADP ATP ANP ACP AGS CMP SAM SAH ADN"),
        ("G", "G DG RG", "GUA OMG GMP GDP GTP GNP GCP GSP 5GP"),
        ("I", "I DI RI", "IMP"),
        ("C", "C DC RC", "CYT OMC C5P CDP CTP"),
        ("U", "U DU RU", "URA URI OMU U5P UDP UTP"),
        ("T", "DT RT", "THY TMP TTP TYD"),
    )
}

_MODIFIED_BASES: dict[str, tuple[str, str]] = {
    "PSU": ("U", "H1 HN1 HN3"),
    "5MU": ("U", "C5M HN3"),
    "4SU": ("U", "S4"),
    "5BU": ("U", "BR"),
    "UR3": ("U", "C3U"),
    "5MC": ("C", "CM5"),
    "5CM": ("C", "C5A"),
    "2MG": ("G", "CM2 HN1 HN2"),
    "M2G": ("G", "CM1 CM2 HN1"),
    "1MG": ("G", "CM1 HN21 HN22"),
    "7MG": ("G", "CM7 HN1 HN21 HN22"),
    "G7M": ("G", "CM7 HN1 HN21 HN22"),
    "8OG": ("G", "O8 H7"),
    "1MA": ("A", "CM1 HN6 HN61"),
    "2MA": ("A", "CM2"),
    "6MA": ("A", "C1 C10"),
    "6MZ": ("A", "C9"),
    "MA6": ("A", "C9 C10"),
}

# Dihydrouridine: C5 and C6 are sp3, the ring is puckered; two trigonal groups remain.
_DIHYDROURIDINE = (("base", "C1' N1 C2 O2 N3 C6"), ("base", "N3 C4 O4 C5 C2 H3 HN3"))

_ATOM_SYNONYMS = {"C5M": "C7", "C1*": "C1'"}

_AMINO_ACIDS = frozenset(_SIDE_CHAINS).union(
    _MODIFIED_AMINO_ACIDS, *(names.split() for names in _AMINO_ACID_SYNONYMS.values())
) - {"ACE", "FOR", "NH2", "NME", "NMA"}

_ACYL_MEMBERS = ("CA", "CH3", "C", "O", "OT1", "OC1")
_TERMINUS_MEMBERS = ("OXT", "OT2", "OC2", "OT", "NT", "HNT", "CAT")
_BACKBONE = frozenset(("N", "H", "H2", "H3", "HA", "CA", "HXT", *_ACYL_MEMBERS, *_TERMINUS_MEMBERS))
# What the nitrogen of a cap carries; its names in the wwPDB, in CHARMM and in Amber.
_AMINE_CAPS = {
    "NH2": ("HN1", "HN2", "H1", "H2"),
    "NME": ("C", "CH3", "H", "HN"),
    "NMA": ("C", "CA", "CH3", "H", "HN"),
}
# CHARMM writes the acetyl cap into the first residue.
_CHARMM_ACETYL = ("peptide", ("CAY", "CY", "OY", "N", "HN", "H", "CA", "CD"))

_NON_METALS = frozenset(["H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I"])
# Half the length of a single bond between sp3 atoms, Å: what is clearly shorter is conjugated.
_SINGLE_BOND_RADIUS = {"C": 0.77, "N": 0.70, "O": 0.66, "S": 1.05}
_BOND_TOLERANCE = 0.25
_LONGEST_BOND = 2.6

_UNKNOWN_ORDER = 0.0
_AROMATIC = 1.5
_ORDER_OF_TYPE = {
    bond_types.Single: 1.0,
    bond_types.Amide: 1.0,
    bond_types.Aromatic: _AROMATIC,
    bond_types.Double: 2.0,
    bond_types.Triple: 3.0,
}


@dataclass(frozen=True)
class Plane:
    """Atoms that lie in one plane.

    Attributes
    ----------
    kind : str
        "peptide", "side chain", "ring", "guanidinium", "carboxylate", "terminus", "base" or "ligand".
    residue_name : str
        Name of the residue type; for a peptide group that of the residue which gives the carbonyl.
    residue : str
        Label of that residue: chain, name, number and insertion code, as ``A HIS 57B``.
    atoms : tuple of int
        Indices into the topology.
    sigma : float or tuple of float
        Å; one for the plane, or one per atom where a dictionary says so.
    """

    kind: str
    residue_name: str
    residue: str
    atoms: tuple[int, ...]
    sigma: float | tuple[float, ...]


@dataclass(frozen=True)
class Deviations:
    """Distances from the best planes, one row per plane, in Å; NaN where an atom has no finite position.

    Attributes
    ----------
    rms : ndarray of shape (P,)
        Root mean square distance of a plane's atoms from it.
    worst : ndarray of shape (P,)
        Largest distance.
    worst_atom : ndarray of shape (P,), int64
        Topology index of the atom with that distance.
    """

    rms: np.ndarray
    worst: np.ndarray
    worst_atom: np.ndarray


@dataclass(frozen=True)
class PlaneSet:
    """The planes of one topology.

    Attributes
    ----------
    planes : tuple of Plane
        Each with at least four atoms.
    dropped : tuple of Plane
        Groups that chemistry makes flat but of which fewer than four atoms are present, heavy atoms missing.
    undetermined : tuple of str
        Labels of residues that may hold planes which the topology alone cannot tell: no hydrogens, no bond
        orders, no positions and no dictionary.
    """

    planes: tuple[Plane, ...]
    dropped: tuple[Plane, ...] = ()
    undetermined: tuple[str, ...] = ()

    def grouped(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Give the planes by size, smallest first, for the kernel.

        Returns
        -------
        list of (indices, sigmas)
            ``indices`` int64 of shape (P, n); ``sigmas`` float64 in Å of shape (P,), or (P, n) where any plane
            of that size has a σ per atom. Within a size the order is that of ``planes``.
        """
        groups = []
        for _, atoms, rows in self._by_size:
            sigmas = [self.planes[row].sigma for row in rows]
            if any(isinstance(sigma, tuple) for sigma in sigmas):
                sigmas = [s if isinstance(s, tuple) else (s,) * atoms.shape[1] for s in sigmas]
            groups.append((atoms.copy(), np.array(sigmas, dtype=np.float64)))
        return groups

    def deviations(self, positions: Any) -> Deviations:
        """Measure every plane's distance from flatness.

        The best plane is the one that the energy uses: through the centroid weighted with 1/σ², its normal the
        eigenvector of the smallest eigenvalue of the covariance weighted alike. RMS and worst are over the
        plain distances.

        Parameters
        ----------
        positions : array_like or Quantity of shape (N, 3)
            Å, or with a unit.

        Returns
        -------
        Deviations
            In the order of ``planes``.

        Raises
        ------
        InputError
            ``positions`` has fewer rows than an atom index of a plane needs.
        """
        distances = self._distances(positions)
        rms, worst = np.empty(len(self.planes)), np.empty(len(self.planes))
        worst_atom = np.empty(len(self.planes), dtype=np.int64)
        for distance, atoms, rows in distances:
            size = np.abs(distance)
            column = np.argmax(size, axis=1)
            rms[rows] = np.sqrt(np.mean(size**2, axis=1))
            worst[rows] = size[np.arange(len(rows)), column]
            worst_atom[rows] = atoms[np.arange(len(rows)), column]
        return Deviations(rms, worst, worst_atom)

    def rms(self, positions: Any) -> float:
        """Give the root mean square distance in Å over all members of all planes (0 for no planes)."""
        distances = [distance.ravel() for distance, _, _ in self._distances(positions)]
        return float(np.sqrt(np.mean(np.concatenate(distances) ** 2))) if distances else 0.0

    def worst(self, positions: Any) -> float:
        """Give the largest distance in Å of an atom from the plane it belongs to (0 for no planes)."""
        return float(np.max(self.deviations(positions).worst, initial=0.0))

    def by_residue(self) -> dict[str, dict[str, int]]:
        """Count the planes: residue name to kind to number, both in alphabetical order."""
        counts = Counter((plane.residue_name, plane.kind) for plane in self.planes)
        table: dict[str, dict[str, int]] = {}
        for (name, kind), count in sorted(counts.items()):
            table.setdefault(name, {})[kind] = count
        return table

    @functools.cached_property
    def _by_size(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        sizes = np.array([len(plane.atoms) for plane in self.planes], dtype=np.int64)
        groups = []
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            groups.append((int(size), np.array([self.planes[r].atoms for r in rows], dtype=np.int64), rows))
        return groups

    def _distances(self, positions: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        coordinates = positions_in_angstrom(positions)
        result = []
        for (_, atoms, rows), (_, sigmas) in zip(self._by_size, self.grouped(), strict=True):
            if atoms.max() >= len(coordinates):
                raise InputError(
                    f"positions: {len(coordinates)} rows, but the planes name atom {atoms.max()}; "
                    "give the positions of the topology that the planes were found in"
                )
            weights = np.broadcast_to(sigmas.reshape(len(rows), -1), atoms.shape) ** -2.0
            weights = weights / weights.sum(axis=1, keepdims=True)
            finite = np.isfinite(coordinates[atoms]).all(axis=(1, 2))
            members = np.where(finite[:, None, None], coordinates[atoms], 0.0)
            centred = members - np.einsum("pn,pnd->pd", weights, members)[:, None]
            covariance = np.einsum("pn,pni,pnj->pij", weights, centred, centred)
            normal = np.linalg.eigh(covariance)[1][:, :, 0]
            distance = np.einsum("pnd,pd->pn", centred, normal)
            distance[~finite] = np.nan
            result.append((distance, atoms, rows))
        return result


def find_planes(
    topology: Topology,
    positions: Any = None,
    sigma: Any = 0.02,
    dictionaries: Sequence[str | os.PathLike[str]] | str | os.PathLike[str] = (),
) -> PlaneSet:
    """Find every group of a model that chemistry holds flat.

    Parameters
    ----------
    topology : openmm.app.Topology
        Bonds join the residues; inside residues that the tables know they are not needed. Atoms that occur
        twice under one name in a residue are taken to be alternate locations, the first of each name with the
        first of the others: each alternate gets its own plane.
    positions : array_like or Quantity of shape (N, 3), optional
        Å, or with a unit. They break the chain at gaps (C–N of 3 Å and more), join consecutive residues that
        the bond list leaves apart (C–N below 2 Å), give ligands without bonds their bonds, and tell the
        conjugated atoms of a ligand without hydrogens by the lengths of their bonds, medians over its copies.
    sigma : float or Quantity
        Å; of every plane to which no dictionary gives one.
    dictionaries : path or sequence of paths
        Restraint dictionaries (CCP4/REFMAC, AceDRG) or wwPDB component files; the last one that names a
        component wins.

    Returns
    -------
    PlaneSet
        In the order of the residues; a peptide group stands after the other groups of the residue that gives
        its carbonyl.

    Raises
    ------
    InputError
        σ is not a positive number; positions do not match the topology; the topology has amino acids but
        neither bonds nor positions; a dictionary cannot be read, defines no component, has a plane that names
        an unknown atom or a σ that is not positive, or does not fit the residue of that name.
    """
    sigma = in_angstrom(sigma, "sigma")
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma: found {sigma} Å; give a positive number such as 0.02")
    coordinates = None
    if positions is not None:
        coordinates = positions_in_angstrom(positions)
        if len(coordinates) != topology.getNumAtoms():
            raise InputError(
                f"positions: {len(coordinates)} rows for a topology of {topology.getNumAtoms()} atoms; "
                "give one row per atom"
            )
    if isinstance(dictionaries, str | os.PathLike):
        dictionaries = (dictionaries,)
    components: dict[str, _Component] = {}
    for path in dictionaries:
        components.update(read_dictionary(path))
    return _Search(topology, coordinates, sigma, components).run()


@dataclass
class _Component:
    """What a dictionary says about one residue type.

    ``is_restraint``: its list of planes is complete; otherwise they follow from its bonds.
    """

    source: str
    elements: dict[str, str]
    bonds: dict[tuple[str, str], float]
    planes: dict[str, list[tuple[str, float | None]]]
    is_restraint: bool = False

    def element(self, atom: str) -> str:
        """Give an atom's element, from its name where the file lists bonds only, as a model file does."""
        return self.elements.get(atom) or ("H" if _canonical(atom)[0] == "H" else gemmi.Element(atom[0]).name)


_ORDER_OF_WORD = {"sing": 1.0, "doub": 2.0, "trip": 3.0, "arom": 1.5, "delo": 1.5}


def read_dictionary(path: str | os.PathLike[str]) -> dict[str, _Component]:
    """Read the flat groups and bonds of every component in a restraint dictionary or wwPDB component file.

    Raises
    ------
    InputError
        The file cannot be read as CIF, has no component, or a plane in it is wrong.
    """
    source = os.fspath(path)
    if not Path(source).is_file():
        raise InputError(f"{source}: no such file; give a restraint dictionary or a wwPDB component file")
    try:
        document = gemmi.cif.read(source)
    except (RuntimeError, ValueError, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{source}: not readable as CIF ({reason}); give a restraint dictionary or a wwPDB component file"
        ) from None
    components: dict[str, _Component] = {}

    def component(name: str) -> _Component:
        return components.setdefault(name, _Component(source, {}, {}, {}))

    for block in document:
        for name, atom, element in _rows(block, "_chem_comp_atom.", "comp_id", "atom_id", "type_symbol"):
            component(name).elements[atom] = gemmi.Element("H" if element == "D" else element).name
        ends = ("comp_id", "atom_id_1", "atom_id_2")
        kinds = ("?type", "?value_order", "?aromatic", "?pdbx_aromatic_flag", "?value_dist")
        for row in _rows(block, "_chem_comp_bond.", *ends, *kinds):
            name, first, second, kind, order, aromatic, flag, distance = row
            is_aromatic = (aromatic or flag).lower() in ("y", "yes", "1")
            component(name).bonds[first, second] = (
                _AROMATIC if is_aromatic else _ORDER_OF_WORD.get((kind or order).lower()[:4], _UNKNOWN_ORDER)
            )
            if distance:
                component(name).is_restraint = True
        if block.find_values("_chem_comp_plane_atom.atom_id") and not block.find(
            "_chem_comp_plane_atom.", ["comp_id", "plane_id", "atom_id"]
        ):
            raise InputError(
                f"{source}: _chem_comp_plane_atom in block {block.name} lacks comp_id or plane_id; "
                "complete the table"
            )
        for name, plane, atom, esd in _rows(
            block, "_chem_comp_plane_atom.", "comp_id", "plane_id", "atom_id", "?dist_esd"
        ):
            component(name).is_restraint = True
            sigma = _dictionary_sigma(esd, source, name, plane, atom)
            component(name).planes.setdefault(plane, []).append((atom, sigma))
    for name, found in components.items():
        for plane, members in found.planes.items():
            strangers = [atom for atom, _ in members if found.elements and atom not in found.elements]
            if strangers:
                raise InputError(
                    f"{source}: plane {plane} of {name} names atom {strangers[0]}, "
                    f"which {name} does not have; correct the dictionary"
                )
    if not components:
        raise InputError(
            f"{source}: found no _chem_comp_atom, _chem_comp_bond or _chem_comp_plane_atom; "
            "give a restraint dictionary or a wwPDB component file"
        )
    return components


def _rows(block: gemmi.cif.Block, category: str, *tags: str) -> Iterator[list[str]]:
    for row in block.find(category, list(tags)):
        yield [gemmi.cif.as_string(row[i]) if row.has(i) else "" for i in range(len(tags))]


def _dictionary_sigma(esd: str, source: str, component: str, plane: str, atom: str) -> float | None:
    if not esd:
        return None
    value = gemmi.cif.as_number(esd)
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            f"{source}: plane {plane} of {component} gives atom {atom} the dist_esd {esd}; "
            "it must be a positive number of Å"
        )
    return value


@dataclass(frozen=True)
class _Group:
    """Flat atoms of one residue in local indices.

    ``centres`` are the trigonal ones: what another residue bonds to a centre lies in the plane too.
    """

    kind: str
    atoms: tuple[int, ...]
    centres: frozenset[int] = frozenset()
    sigmas: tuple[float | None, ...] | None = None


@dataclass(frozen=True)
class _Pattern:
    """What all residues with the same name and the same atom names have in common, in local atom indices.

    ``groups`` is None where neither a table nor a dictionary knows the residue. ``acyl``, ``amine`` and
    ``terminus`` hold, per alternate, what the residue gives to the peptide group behind it, to the one before
    it, and to a C-terminus.
    """

    kind: str
    groups: tuple[_Group, ...] | None
    acyl: tuple[tuple[int, ...], ...] = ()
    amine: tuple[tuple[int, ...], ...] = ()
    terminus: tuple[tuple[int, ...], ...] = ()
    carbon: int | None = None
    nitrogen: int | None = None


def _table_of_groups() -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Write out every residue name that the tables above know."""
    rows = dict(_SIDE_CHAINS)
    for name, (parent, added) in _MODIFIED_AMINO_ACIDS.items():
        rows[name] = tuple((kind, f"{atoms} {added}") for kind, atoms in _SIDE_CHAINS[parent])
    for parent, synonyms in _AMINO_ACID_SYNONYMS.items():
        rows.update((name, _SIDE_CHAINS[parent]) for name in synonyms.split())
    for base, synonyms in _BASE_SYNONYMS.items():
        rows.update((name, (("base", _BASES[base]),)) for name in synonyms.split())
    for name, (base, added) in _MODIFIED_BASES.items():
        rows[name] = (("base", f"{_BASES[base]} {added}"),)
    rows["H2U"] = rows["DHU"] = _DIHYDROURIDINE
    return {
        name: tuple((kind, tuple(atoms.split())) for kind, atoms in groups) for name, groups in rows.items()
    }


_GROUPS = _table_of_groups()


@functools.lru_cache(maxsize=65536)
def _canonical(name: str) -> str:
    """Bring an old PDB name (1HH1, C1*) or a deuterium's (DD21) to the one that the tables use."""
    if name[:1] in ("1", "2", "3") and name[1:2] in ("H", "D"):
        name = name[1:] + name[0]
    if name[:1] == "D":
        name = "H" + name[1:]
    return _ATOM_SYNONYMS.get(name, name.replace("*", "'"))


def _occurrences(atoms: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Give for each name the atoms that bear it: the alternate locations of one atom."""
    occurrences: dict[str, list[int]] = {}
    for name, atom in atoms:
        occurrences.setdefault(name, []).append(atom)
    return occurrences


def _alternates(occurrences: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Choose the k-th occurrence of every atom for the k-th alternate; the last one where there are fewer."""
    count = max((len(indices) for indices in occurrences), default=0)
    return tuple(tuple(indices[min(k, len(indices) - 1)] for indices in occurrences) for k in range(count))


def _pattern(name: str, atom_names: tuple[str, ...], component: _Component | None) -> _Pattern:
    occurrences = _occurrences((_canonical(atom_name), index) for index, atom_name in enumerate(atom_names))

    def present(members: Iterable[str]) -> list[list[int]]:
        return [occurrences[member] for member in members if member in occurrences]

    is_residue = {"CA", "C", "N"} <= occurrences.keys() or (name in _AMINO_ACIDS and "C" in occurrences)
    kind = "side chain" if is_residue else "base" if {"C1'", "C3'", "C4'"} <= occurrences.keys() else "ligand"
    groups: list[_Group] | None = None
    if component is not None and (component.is_restraint or name not in _GROUPS):
        _check_fit(component, name, atom_names)
    elif name in _HAEMS and not _strangers(_HAEMS[name], atom_names):
        component = _HAEMS[name]
    else:
        component = None
    if component is not None:
        groups = _dictionary_groups(component, kind, atom_names, is_residue)
    elif name in _GROUPS:
        rows = _GROUPS[name]
        if is_residue and {"CAY", "CY"} <= occurrences.keys():
            rows = (*rows, _CHARMM_ACETYL)
        groups = []
        for row_kind, members in rows:
            # The symbol of an ion may be the name of a nucleotide (I, U, IN).
            if row_kind == "base" and len(atom_names) == 1:
                continue
            for atoms in _alternates(present(_canonical(member) for member in members)) or ((),):
                centres = [
                    a for a in atoms if atom_names[a][0] in "CN" and _canonical(atom_names[a]) != members[0]
                ]
                groups.append(_Group(row_kind, atoms, frozenset(centres)))

    acyl = amine = terminus = ()
    carbon = nitrogen = None
    if "C" in occurrences and (is_residue or name in ("ACE", "FOR")):
        carbon = occurrences["C"][0]
        carbonyl = present((*_ACYL_MEMBERS, "H") if name == "FOR" else _ACYL_MEMBERS)
        acyl = _alternates(carbonyl)
        amidated = ("HT1", "HT2") if "NT" in occurrences else ()
        terminus = _alternates([*carbonyl, *present(_TERMINUS_MEMBERS), *present(amidated)])
    if "N" in occurrences and (is_residue or "CA" in occurrences or name in _AMINE_CAPS):
        nitrogen = occurrences["N"][0]
        substituents = _AMINE_CAPS.get(name, ("CA", "H", "HN", "CN"))
        amine = _alternates(present(("N", *substituents, *(("CD",) if name in _PROLINES else ()))))
    return _Pattern(kind, None if groups is None else tuple(groups), acyl, amine, terminus, carbon, nitrogen)


def _strangers(component: _Component, atom_names: tuple[str, ...]) -> list[str]:
    """Give the heavy atoms of a residue that its component does not have, where they are most of them."""
    known = component.elements.keys() | {atom for bond in component.bonds for atom in bond}
    heavy = [atom for atom in atom_names if _canonical(atom)[:1] != "H"]
    strangers = [atom for atom in heavy if atom not in known]
    return strangers if known and 2 * len(strangers) > len(heavy) else []


def _check_fit(component: _Component, name: str, atom_names: tuple[str, ...]) -> None:
    if strangers := _strangers(component, atom_names):
        raise InputError(
            f"{component.source}: its {name} has no atoms {', '.join(strangers[:5])}, which the model's has; "
            "give the dictionary that the model was built with"
        )


def _haem(vinyl: float) -> _Component:
    """Write out haem; ``vinyl`` is the order of the bond that is single where cysteines are bound (haem c)."""
    bonds = {}
    substituents = {"A": ("CAA", "CMA"), "B": ("CMB", "CAB"), "C": ("CMC", "CAC"), "D": ("CMD", "CAD")}
    for ring, before in zip("ABCD", "DABC"):
        members = (f"N{ring}", *(f"C{number}{ring}" for number in "1234"))
        bonds.update(((a, b), _AROMATIC) for a, b in zip(members, (*members[1:], members[0])))
        bonds.update(((f"C{k}{ring}", atom), 1.0) for k, atom in zip("23", substituents[ring]))
        bonds[f"C4{before}", f"CH{ring}"] = bonds[f"CH{ring}", f"C1{ring}"] = _AROMATIC
        bonds[f"CH{ring}", f"HH{ring}"] = 1.0
    for ring in "BC":
        bonds |= {(f"CA{ring}", f"CB{ring}"): vinyl, (f"CA{ring}", f"HA{ring}"): 1.0}
        bonds |= {(f"CB{ring}", f"HB{ring}"): 1.0, (f"CB{ring}", f"HB{ring}A"): 1.0}
    for ring in "AD":
        bonds[f"CA{ring}", f"CB{ring}"] = bonds[f"CB{ring}", f"CG{ring}"] = 1.0
        bonds[f"CG{ring}", f"O1{ring}"] = bonds[f"CG{ring}", f"O2{ring}"] = _AROMATIC
    return _Component("haem", {"FE": "Fe"}, bonds, {})


_HAEMS = {"HEM": _haem(2.0), "HEME": _haem(2.0), "HEC": _haem(1.0)}


def _dictionary_groups(
    component: _Component, kind: str, atom_names: tuple[str, ...], is_residue: bool
) -> list[_Group]:
    """Put a dictionary's planes on a residue; those of the backbone belong to the bonds between residues."""
    occurrences = _occurrences((atom_name, index) for index, atom_name in enumerate(atom_names))
    if component.is_restraint:
        named = [(members, frozenset()) for members in component.planes.values()]
    else:
        names = tuple(dict.fromkeys(atom for bond in component.bonds for atom in bond))
        number = {atom: index for index, atom in enumerate(names)}
        molecule = _Molecule(
            tuple(component.element(atom) for atom in names),
            {_pair(number[a], number[b]): order for (a, b), order in component.bonds.items()},
            frozenset({number["C"]} if is_residue and "C" in number else ()),
        )
        named = [
            ([(names[atom], None) for atom in atoms], frozenset(names[atom] for atom in centres))
            for centres, atoms in molecule.flat_groups()
        ]
    groups = []
    for members, centres in named:
        if is_residue and {_canonical(atom) for atom, _ in members} <= _BACKBONE:
            continue
        present = [(atom, sigma) for atom, sigma in members if atom in occurrences]
        absent = {atom for atom, _ in members if atom not in occurrences}
        if len(present) < SMALLEST_PLANE and all(component.element(atom) == "H" for atom in absent):
            continue
        sigmas = tuple(sigma for _, sigma in present)
        for atoms in _alternates([occurrences[atom] for atom, _ in present]) or ((),):
            groups.append(
                _Group(
                    kind,
                    atoms,
                    frozenset(a for a in atoms if atom_names[a] in centres),
                    sigmas if any(sigmas) else None,
                )
            )
    return groups


def _pair(first: int, second: int) -> tuple[int, int]:
    return (first, second) if first < second else (second, first)


class _Molecule:
    """A bonded graph in which to find conjugation.

    Parameters
    ----------
    elements : tuple of str
        Symbols.
    bonds : dict
        Pair of indices, smaller first, to order: 1, 1.5 for aromatic, 2, 3; 0 where it is not known.
    handled : frozenset of int
        Trigonal atoms whose plane is found elsewhere (the backbone's carbonyl).
    own : int, optional
        The first so many atoms are the residue's; the others are neighbours of its neighbours.
    coordinates : ndarray of shape (copies, atoms, 3), optional
        Å; lengths are medians over the copies.
    """

    def __init__(
        self,
        elements: tuple[str, ...],
        bonds: dict[tuple[int, int], float],
        handled: frozenset[int] = frozenset(),
        own: int | None = None,
        coordinates: np.ndarray | None = None,
    ) -> None:
        self.elements = elements
        self.handled = handled
        self.own = len(elements) if own is None else own
        self.coordinates = coordinates
        self.order = {
            bond: order
            for bond, order in bonds.items()
            if all(elements[atom] in _NON_METALS for atom in bond)
        }
        self.neighbours: list[list[int]] = [[] for _ in elements]
        for a, b in sorted(self.order):
            self.neighbours[a].append(b)
            self.neighbours[b].append(a)
        heavy = [
            bond
            for bond in self.order
            if all(elements[atom] != "H" for atom in bond) and max(bond) < self.own
        ]
        self.has_orders = bool(heavy) and all(self.order[bond] > 0 for bond in heavy)
        self.has_hydrogens = any(
            elements[a] == "C" and any(elements[b] == "H" for b in self.neighbours[a])
            for a in range(self.own)
        )

    @property
    def is_determined(self) -> bool:
        """Whether there is anything beside the heavy atoms' graph to judge by."""
        return self.has_orders or self.has_hydrogens or self.coordinates is not None

    def flat_groups(self) -> list[tuple[frozenset[int], tuple[int, ...]]]:
        """Find (trigonal centres, members) of every flat group, none of them part of another."""
        found: dict[frozenset[int], frozenset[int]] = {}

        def add(centres: Iterable[int], more: Iterable[int] = ()) -> None:
            centres = frozenset(centres)
            if min(centres) < self.own and not centres & self.handled:
                members = centres.union(more, *(self.neighbours[centre] for centre in centres))
                found[members] = found.get(members, frozenset()) | centres

        for ring in self._flat_rings:
            add(ring)
        for bond in self._stiff_bonds():
            add(bond)
        in_ring = frozenset().union(*self._flat_rings)
        for centre in self._trigonal - in_ring:
            substituted = [
                nitrogen
                for nitrogen in self.neighbours[centre]
                if self._is_acyl(centre) and nitrogen in self._conjugated_nitrogens - in_ring
            ]
            add([centre], [atom for nitrogen in substituted for atom in self.neighbours[nitrogen]])
        for nitrogen in range(self.own):
            if self.elements[nitrogen] == "N" and len(self._terminal_oxygens(nitrogen)) >= 2:
                add([nitrogen])
        groups = [
            (centres, tuple(sorted(members)))
            for members, centres in found.items()
            if len(members) >= SMALLEST_PLANE and not any(members < other for other in found)
        ]
        return sorted(groups, key=lambda group: group[1])

    @functools.cached_property
    def _trigonal(self) -> frozenset[int]:
        if self.has_orders:
            judge = self._is_trigonal_by_order
        elif self.has_hydrogens:
            judge = self._is_trigonal_by_count
        elif self.coordinates is not None:
            judge = self._is_trigonal_by_length
        else:
            judge = self._is_trigonal_for_certain
        return frozenset(
            atom
            for atom, element in enumerate(self.elements)
            if (element == "C" and judge(atom)) or (element == "B" and len(self.neighbours[atom]) == 3)
        )

    def _is_trigonal_by_order(self, carbon: int) -> bool:
        orders = [self.order[_pair(carbon, other)] for other in self.neighbours[carbon]]
        return max(orders, default=0) in (1.5, 2.0) and orders.count(2.0) < 2

    def _is_trigonal_by_count(self, carbon: int) -> bool:
        """Count the neighbours; a pyramid with long bonds is a tetrahedral carbon that lacks an atom."""
        if len(self.neighbours[carbon]) != 3:
            return False
        return (
            self.coordinates is None or self._height(carbon) < 0.35 or self._mean_shortening(carbon) > 0.055
        )

    def _mean_shortening(self, carbon: int) -> float:
        shortening = [
            self._shortening(carbon, other)
            for other in self.neighbours[carbon]
            if self.elements[other] in _SINGLE_BOND_RADIUS
        ]
        return float(np.mean(shortening)) if shortening else 0.0

    def _is_trigonal_by_length(self, carbon: int) -> bool:
        """Judge by the mean shortening of the bonds; no pyramid's tip and no linear carbon is trigonal."""
        neighbours = self.neighbours[carbon]
        if len(neighbours) > 3:
            return False
        if self._is_trigonal_for_certain(carbon):
            return True
        mean = self._mean_shortening(carbon)
        if len(neighbours) == 3:
            if any(self._shortening(carbon, oxygen) > 0.1 for oxygen in self._terminal_oxygens(carbon)):
                return self._height(carbon) < 0.4
            return mean > 0.055 and self._height(carbon) < 0.3
        if len(neighbours) == 2:
            return mean > 0.07 and self._angle(carbon) < 150.0
        return mean > 0.12

    def _is_trigonal_for_certain(self, carbon: int) -> bool:
        """Tell a carboxylate, an amide or a guanidine from the heavy atoms alone."""
        if len(self.neighbours[carbon]) != 3:
            return False
        oxygens = len(self._terminal_oxygens(carbon))
        nitrogens = sum(self.elements[other] == "N" for other in self.neighbours[carbon])
        return oxygens >= 2 or (oxygens == 1 and nitrogens >= 1) or nitrogens == 3

    def _terminal_oxygens(self, atom: int) -> list[int]:
        return [
            o
            for o in self.neighbours[atom]
            if self.elements[o] in ("O", "S") and len(self.neighbours[o]) == 1
        ]

    def _is_acyl(self, carbon: int) -> bool:
        nitrogens = sum(self.elements[other] == "N" for other in self.neighbours[carbon])
        return bool(self._terminal_oxygens(carbon)) or nitrogens >= 2

    @functools.cached_property
    def _conjugated_nitrogens(self) -> frozenset[int]:
        """Nitrogens conjugated with a trigonal carbon by lone pair or double bond, also through nitrogen."""
        candidates = {
            atom
            for atom, element in enumerate(self.elements)
            if element == "N" and len(self.neighbours[atom]) <= 3 and not self._is_pyramid(atom)
        }
        conjugated = {atom for atom in candidates if self._trigonal.intersection(self.neighbours[atom])}
        border = set(conjugated)
        while border:
            border = {
                other for atom in border for other in self.neighbours[atom] if other in candidates
            } - conjugated
            conjugated |= border
        return frozenset(conjugated)

    def _is_pyramid(self, atom: int) -> bool:
        heavy = [other for other in self.neighbours[atom] if self.elements[other] != "H"]
        if len(heavy) < 3 or len(self.neighbours[atom]) > 3 or self.coordinates is None:
            return False
        return self._height(atom) > 0.35

    @functools.cached_property
    def _flat_rings(self) -> list[frozenset[int]]:
        return [ring for ring in self._rings if self._is_flat(ring)]

    @functools.cached_property
    def _rings(self) -> list[frozenset[int]]:
        """Find the rings of five and six: for each bond the shortest way round."""
        ways = (self._way_round(bond, 6, range(len(self.elements))) for bond in self.order)
        return list(dict.fromkeys(frozenset(way) for way in ways if len(way) >= 5))

    def _way_round(self, bond: tuple[int, int], longest: int, allowed: Container[int]) -> list[int]:
        """Give the smallest ring of allowed atoms through a bond, empty where it has more than ``longest``."""
        start, end = bond
        previous = {start: start}
        queue = deque([(start, 1)])
        while queue and end not in previous:
            atom, length = queue.popleft()
            if length == longest:
                break
            for other in self.neighbours[atom]:
                if other in allowed and other not in previous and (atom, other) != (start, end):
                    previous[other] = atom
                    queue.append((other, length + 1))
        if end not in previous:
            return []
        ring = [end]
        while ring[-1] != start:
            ring.append(previous[ring[-1]])
        return ring

    def _is_flat(self, ring: frozenset[int]) -> bool:
        """Whether a ring is conjugated all round; six-membered ones with eight π electrons fold.

        Phenothiazine, dioxin and the middle ring of a reduced flavin have eight; uracil, quinones, quinolones
        and the oxidised flavin do not, because an exocyclic double bond takes its carbon's electron out.
        """
        electrons = 0
        for atom in ring:
            if atom in self._trigonal:
                electrons += not self._has_double_bond_out_of(ring, atom)
            elif atom in self._conjugated_nitrogens:
                electrons += 1 if len(self.neighbours[atom]) == 2 else 2
            elif self.elements[atom] in ("O", "S", "Se") and len(self.neighbours[atom]) == 2:
                electrons += 2
            else:
                return False
        return len(ring) == 5 or electrons < 8

    def _has_double_bond_out_of(self, ring: frozenset[int], atom: int) -> bool:
        """Whether a ring atom has a double bond that is part of no ring; a fused ring's can move."""
        return bool(self._terminal_oxygens(atom)) or any(
            self.order[_pair(atom, other)] == 2.0
            and not any(other in found and atom in found for found in self._rings)
            for other in self.neighbours[atom]
            if other not in ring
        )

    def _stiff_bonds(self) -> list[tuple[int, int]]:
        """Find the bonds outside flat rings, between carbons and nitrogens, that do not turn."""
        able = self._conjugated_nitrogens.union(a for a in self._trigonal if self.elements[a] == "C")
        candidates = [
            bond
            for bond in self.order
            if able.issuperset(bond) and not any(ring.issuperset(bond) for ring in self._flat_rings)
        ]
        if self.has_orders:
            double = [bond for bond in candidates if self.order[bond] in (_AROMATIC, 2.0)]
        elif self.has_hydrogens or self.coordinates is None:
            double = self._forced_double_bonds(candidates)
        else:
            double = [
                bond
                for bond in candidates
                if self._shortening(*bond) > 0.13 and not self._is_amide_bond(bond)
            ]
        # Between the rings of a porphyrin or corrole no bond is single, whatever a Kekulé formula says.
        macrocyclic = [bond for bond in candidates if len(self._way_round(bond, 16, able)) >= 15]
        return list(dict.fromkeys([*double, *macrocyclic]))

    def _is_amide_bond(self, bond: tuple[int, int]) -> bool:
        return any(
            self.elements[nitrogen] == "N" and carbon in self._trigonal and self._is_acyl(carbon)
            for carbon, nitrogen in (bond, bond[::-1])
        )

    def _forced_double_bonds(self, candidates: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Place double bonds from the ends of a chain, where a trigonal atom has only one partner left."""
        in_ring = frozenset().union(*self._flat_rings)
        single = {
            atom
            for atom in range(len(self.elements))
            if atom in in_ring
            or (self.elements[atom] == "C" and self._is_acyl(atom))
            or (self.elements[atom] == "N" and len(self.neighbours[atom]) != 2)
        }
        partners: dict[int, set[int]] = {}
        for a, b in candidates:
            if a not in single and b not in single:
                partners.setdefault(a, set()).add(b)
                partners.setdefault(b, set()).add(a)
        double = []
        while ends := sorted(atom for atom, others in partners.items() if len(others) == 1):
            first, (second,) = ends[0], partners[ends[0]]
            double.append(_pair(first, second))
            for atom in (first, second):
                for other in partners.pop(atom):
                    if other in partners:
                        partners[other].discard(atom)
        return double

    @functools.cached_property
    def _length(self) -> dict[tuple[int, int], float]:
        bonds = list(self.order)
        ends = self.coordinates[:, np.array(bonds)]
        lengths = np.median(np.linalg.norm(ends[:, :, 0] - ends[:, :, 1], axis=2), axis=0)
        return dict(zip(bonds, lengths.tolist(), strict=True))

    def _shortening(self, first: int, second: int) -> float:
        """Give by how many Å a bond is shorter than a single bond between sp3 atoms."""
        reference = sum(_SINGLE_BOND_RADIUS[self.elements[atom]] for atom in (first, second))
        return reference - self._length[_pair(first, second)]

    def _height(self, atom: int) -> float:
        """Give the distance of an atom from the plane of its three neighbours."""
        a, b, c = np.moveaxis(self.coordinates[:, self.neighbours[atom]], 1, 0)
        normal = np.cross(b - a, c - a)
        area = np.linalg.norm(normal, axis=1)
        height = np.abs(np.einsum("ci,ci->c", self.coordinates[:, atom] - a, normal)) / np.maximum(area, 1e-9)
        return float(np.median(height))

    def _angle(self, atom: int) -> float:
        a, b = np.moveaxis(self.coordinates[:, self.neighbours[atom][:2]] - self.coordinates[:, [atom]], 1, 0)
        cosine = np.einsum("ci,ci->c", a, b) / np.maximum(
            np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-9
        )
        return float(np.degrees(np.median(np.arccos(np.clip(cosine, -1.0, 1.0)))))


class _Search:
    """One pass over a topology: what the residues are, how they are joined, which planes follow."""

    def __init__(
        self,
        topology: Topology,
        coordinates: np.ndarray | None,
        sigma: float,
        components: dict[str, _Component],
    ) -> None:
        self.coordinates = coordinates
        self.sigma = sigma
        self.residues = list(topology.residues())
        self.elements = [atom.element.symbol if atom.element is not None else "" for atom in topology.atoms()]
        self.elements = ["H" if symbol == "D" else symbol for symbol in self.elements]
        self.residue_of = np.empty(len(self.elements), dtype=np.int64)
        self.indices: list[list[int]] = []
        self.names: list[tuple[str, ...]] = []
        self.patterns: list[_Pattern] = []
        self.place: list[int] = []
        seen: dict[tuple[str, tuple[str, ...]], _Pattern] = {}
        for number, residue in enumerate(self.residues):
            indices = [atom.index for atom in residue.atoms()]
            names = tuple([atom.name for atom in residue.atoms()])
            key = (residue.name, names)
            if key not in seen:
                seen[key] = _pattern(*key, components.get(residue.name))
            self.residue_of[indices] = number
            self.indices.append(indices)
            self.names.append(names)
            self.patterns.append(seen[key])
            self.place.append(self.place[-1] + (not self._shares_place(number)) if number else 0)
        bonds = [(_pair(bond[0].index, bond[1].index), _bond_order(bond)) for bond in topology.bonds()]
        self.order = dict(bonds)
        self.carbonyls = {
            self.indices[r][p.carbon]: r for r, p in enumerate(self.patterns) if p.carbon is not None
        }
        self.amines = {
            self.indices[r][p.nitrogen]: r for r, p in enumerate(self.patterns) if p.nitrogen is not None
        }
        if not bonds and coordinates is None and len(self.carbonyls) > 1:
            raise InputError(
                "topology: it has neither bonds nor positions to tell which residues are joined; "
                "call topology.createStandardBonds() or give positions"
            )

    def run(self) -> PlaneSet:
        unknown = [r for r in range(len(self.residues)) if self._needs_perception(r)]
        self._bond_by_distance(unknown)
        self.crossing = self._crossing_bonds()
        nitrogens = self._peptide_bonds()
        partners: dict[int, list[int]] = {}
        for a, b in self.crossing:
            for atom, other in ((a, b), (b, a)):
                if self.elements[other] in _NON_METALS and self.elements[other] != "H":
                    partners.setdefault(atom, []).append(other)
        perceived, undetermined = self._perceive(unknown, nitrogens.keys())
        planes, dropped = [], []
        emitted: set[tuple[int, ...]] = set()
        for r, pattern in enumerate(self.patterns):
            found = self._backbone_planes(r, nitrogens.get(r, ()))
            if pattern.groups:
                found = [*self._pattern_planes(r, partners), *found]
            elif r in perceived:
                found = [*perceived[r], *found]
            if not found:
                continue
            name, label = self.residues[r].name, residue_label(self.residues[r])
            for kind, atoms, sigma in found:
                key = tuple(sorted(atoms))
                if len(atoms) < SMALLEST_PLANE:
                    dropped.append(Plane(kind, name, label, atoms, sigma))
                elif key not in emitted:
                    emitted.add(key)
                    planes.append(Plane(kind, name, label, atoms, sigma))
        return PlaneSet(
            tuple(planes), tuple(dropped), tuple(residue_label(self.residues[r]) for r in undetermined)
        )

    def _shares_place(self, r: int) -> bool:
        """Whether a residue is an alternate of the one before it (microheterogeneity)."""
        a, b = self.residues[r - 1], self.residues[r]
        return a.id == b.id and a.chain is b.chain and a.insertionCode == b.insertionCode and a.name != b.name

    def _needs_perception(self, r: int) -> bool:
        if self.patterns[r].groups is not None:
            return False
        return sum(self.elements[atom] in _NON_METALS for atom in self.indices[r]) >= SMALLEST_PLANE

    def _distance(self, a: int, b: int) -> float:
        return float(np.linalg.norm(self.coordinates[a] - self.coordinates[b]))

    def _bond_by_distance(self, unknown: list[int]) -> None:
        """Give residues that the bond list leaves in pieces the bonds that their positions show."""
        inside: dict[int, list[tuple[int, int]]] = {r: [] for r in unknown}
        if inside:
            for a, b in self.order:
                r = int(self.residue_of[a])
                if r in inside and self.residue_of[b] == r:
                    inside[r].append((a, b))
        self.chosen: dict[int, list[int]] = {}
        self.unbonded: set[int] = set()
        for r in unknown:
            if _is_connected([a for a in self.indices[r] if self.elements[a] in _NON_METALS], inside[r]):
                self.chosen[r] = self.indices[r]
                continue
            first_of_name: dict[str, int] = {}
            for name, atom in zip(self.names[r], self.indices[r], strict=True):
                first_of_name.setdefault(name, atom)
            self.chosen[r] = list(first_of_name.values())
            self.unbonded.add(r)
        if not self.unbonded or self.coordinates is None:
            return
        finite = np.isfinite(self.coordinates).all(axis=1)
        bondable = np.array([element in _NON_METALS for element in self.elements]) & finite
        everything = np.flatnonzero(bondable)
        chosen = [a for r in sorted(self.unbonded) for a in self.chosen[r] if bondable[a]]
        if not chosen:
            return
        members = np.array(chosen, dtype=np.int64)
        tree, others = cKDTree(self.coordinates[members]), cKDTree(self.coordinates[everything])
        pairs = tree.sparse_distance_matrix(others, _LONGEST_BOND, output_type="ndarray")
        nearest: dict[int, tuple[float, int]] = {}
        for i, j, distance in pairs.tolist():
            a, b = int(members[i]), int(everything[j])
            if not self._may_bond(a, b, distance):
                continue
            if self.elements[a] == "H":
                nearest[a] = min(nearest.get(a, (math.inf, -1)), (distance, b))
            elif self.elements[b] != "H":
                self.order.setdefault(_pair(a, b), _UNKNOWN_ORDER)
        for hydrogen, (_, heavy) in nearest.items():
            self.order.setdefault(_pair(hydrogen, heavy), _UNKNOWN_ORDER)

    def _may_bond(self, a: int, b: int, distance: float) -> bool:
        first, second = self.elements[a], self.elements[b]
        r, s = int(self.residue_of[a]), int(self.residue_of[b])
        if distance < 0.5 or (first == "H" and second == "H"):
            return False
        if r == s:
            if b not in self.chosen[r]:
                return False
        elif "H" in (first, second) or self.place[r] == self.place[s] or len(self.indices[s]) <= 3:
            return False
        return distance < gemmi.Element(first).covalent_r + gemmi.Element(second).covalent_r + _BOND_TOLERANCE

    def _crossing_bonds(self) -> list[tuple[int, int]]:
        """Give the bonds between residues that are neither gaps nor between alternates."""
        bonds = np.array(list(self.order), dtype=np.int64).reshape(-1, 2)
        place = np.array(self.place, dtype=np.int64)[self.residue_of[bonds]]
        bonds = bonds[place[:, 0] != place[:, 1]]
        if self.coordinates is not None:
            lengths = np.linalg.norm(self.coordinates[bonds[:, 0]] - self.coordinates[bonds[:, 1]], axis=1)
            bonds = bonds[~(lengths >= CLOSEST_GAP)]
        return [(a, b) for a, b in bonds.tolist()]

    def _peptide_bonds(self) -> dict[int, list[int]]:
        """Give the nitrogens that each residue's carbonyl is bonded to."""
        nitrogens: dict[int, list[int]] = {}
        for a, b in self.crossing:
            for carbon, nitrogen in ((a, b), (b, a)):
                if carbon in self.carbonyls and self.elements[nitrogen] == "N":
                    nitrogens.setdefault(self.carbonyls[carbon], []).append(nitrogen)
        if self.coordinates is None:
            return nitrogens
        for carbon, r in self.carbonyls.items():
            for s in self._next_residues(r):
                pattern = self.patterns[s]
                if pattern.nitrogen is None:
                    continue
                nitrogen = self.indices[s][pattern.nitrogen]
                if nitrogen in nitrogens.get(r, ()):
                    continue
                if self._distance(carbon, nitrogen) < LONGEST_UNLISTED_PEPTIDE_BOND:
                    nitrogens.setdefault(r, []).append(nitrogen)
        return nitrogens

    def _next_residues(self, r: int) -> Iterator[int]:
        for s in range(r + 1, len(self.residues)):
            if self.place[s] > self.place[r] + 1 or self.residues[s].chain is not self.residues[r].chain:
                return
            if self.place[s] > self.place[r]:
                yield s

    def _backbone_planes(self, r: int, nitrogens: Sequence[int]) -> list[tuple[str, tuple[int, ...], Any]]:
        pattern, indices = self.patterns[r], self.indices[r]
        if pattern.carbon is None:
            return []
        if not nitrogens:
            # Of a residue that nobody knows, the names CA, C and O promise nothing: its bonds say what is flat.
            if pattern.groups is None:
                return []
            return [
                ("terminus", tuple([indices[a] for a in atoms]), self.sigma) for atoms in pattern.terminus
            ]
        planes = []
        for nitrogen in nitrogens:
            amines = self._amines_of(nitrogen, indices[pattern.carbon])
            for k in range(max(len(pattern.acyl), len(amines))):
                acyl = tuple([indices[a] for a in pattern.acyl[min(k, len(pattern.acyl) - 1)]])
                planes.append(("peptide", acyl + amines[min(k, len(amines) - 1)], self.sigma))
        return planes

    def _amines_of(self, nitrogen: int, carbon: int) -> list[tuple[int, ...]]:
        """Give, per alternate, a nitrogen with its substituents other than the carbonyl."""
        s = self.amines.get(nitrogen)
        if s is not None and self.patterns[s].groups is not None:
            return [tuple([self.indices[s][a] for a in atoms]) for atoms in self.patterns[s].amine]
        substituents = [other for other in self._adjacency.get(nitrogen, ()) if other != carbon]
        if s is not None and not substituents:
            return [tuple([self.indices[s][a] for a in atoms]) for atoms in self.patterns[s].amine]
        return [(nitrogen, *substituents)]

    @functools.cached_property
    def _adjacency(self) -> dict[int, list[int]]:
        """Neighbours of the atoms in unknown residues and in residues joined otherwise than in a chain.

        Without metals, and without bonds that are no bonds (gaps, alternates).
        """
        wanted = np.zeros(len(self.residues), dtype=bool)
        wanted[list(self.chosen)] = True
        joined = []
        for a, b in self.crossing:
            ends = self.residue_of[[a, b]]
            in_chain = (a in self.carbonyls and b in self.amines) or (
                b in self.carbonyls and a in self.amines
            )
            if not in_chain or wanted[ends].any():
                joined.extend(ends.tolist())
        wanted[joined] = True
        bonds = np.array(list(self.order), dtype=np.int64).reshape(-1, 2)
        owner = self.residue_of[bonds]
        inside = bonds[(owner[:, 0] == owner[:, 1]) & wanted[owner[:, 0]]]
        adjacency: dict[int, list[int]] = {}
        for a, b in sorted([*map(tuple, inside.tolist()), *self.crossing]):
            if self.elements[a] in _NON_METALS and self.elements[b] in _NON_METALS:
                adjacency.setdefault(a, []).append(b)
                adjacency.setdefault(b, []).append(a)
        return adjacency

    def _pattern_planes(
        self, r: int, partners: dict[int, list[int]]
    ) -> list[tuple[str, tuple[int, ...], float | tuple[float, ...]]]:
        indices = self.indices[r]
        planes = []
        for group in self.patterns[r].groups:
            atoms = tuple([indices[a] for a in group.atoms])
            sigmas = group.sigmas
            if partners and group.centres:
                linked = [other for a in group.centres for other in partners.get(indices[a], ())]
                atoms += tuple(sorted(set(linked) - set(atoms)))
            sigma: float | tuple[float, ...] = self.sigma
            if sigmas is not None:
                values = tuple(self.sigma if value is None else value for value in sigmas)
                sigma = values[0] if len(set(values)) == 1 else values
            planes.append((group.kind, atoms, sigma))
        return planes

    def _perceive(
        self, unknown: list[int], linked: Container[int]
    ) -> tuple[dict[int, list[tuple[str, tuple[int, ...], float]]], list[int]]:
        """Find the flat groups of residues unknown to tables and dictionaries, copies of one together.

        The carbonyl of ``linked`` residues lies in a peptide group and is left to it.
        """
        copies: dict[Any, list[tuple[int, list[int]]]] = {}
        for r in unknown:
            atoms, key = self._surroundings(r)
            copies.setdefault((*key, r in linked), []).append((r, atoms))
        perceived: dict[int, list[tuple[str, tuple[int, ...], float]]] = {}
        undetermined: list[int] = []
        for (_, _, elements, bonds, own, is_linked), members in copies.items():
            coordinates = None
            if self.coordinates is not None:
                stacked = self.coordinates[np.array([atoms for _, atoms in members])]
                stacked = stacked[np.isfinite(stacked).all(axis=(1, 2))]
                coordinates = stacked if len(stacked) else None
            r, atoms = members[0]
            pattern = self.patterns[r]
            carbon = None if pattern.carbon is None else atoms.index(self.indices[r][pattern.carbon])
            handled = frozenset({carbon} if is_linked else ())
            molecule = _Molecule(elements, dict(bonds), handled, own, coordinates)
            groups = molecule.flat_groups()
            for r, atoms in members:
                if not molecule.is_determined or not bonds:
                    undetermined.append(r)
                for centres, group in groups:
                    kind = "terminus" if centres == {carbon} else pattern.kind
                    for plane in self._alternates_of(r, [atoms[a] for a in group]):
                        perceived.setdefault(r, []).append((kind, plane, self.sigma))
        return perceived, sorted(undetermined)

    def _surroundings(self, r: int) -> tuple[list[int], Any]:
        """Give a residue's atoms, then those up to two bonds away, and what its copies share with it."""
        own = self.chosen[r]
        atoms = dict.fromkeys(own)
        for _ in range(2):
            border = [other for atom in atoms for other in self._adjacency.get(atom, ())]
            outer = [other for other in border if self.residue_of[other] != r]
            atoms.update(dict.fromkeys(outer))
        number = {atom: index for index, atom in enumerate(atoms)}
        bonds = {
            (_pair(number[a], number[b]), self.order[_pair(a, b)])
            for a in atoms
            for b in self._adjacency.get(a, ())
            if b in number
        }
        elements = tuple(self.elements[atom] for atom in atoms)
        key = (self.residues[r].name, self.names[r], elements, tuple(sorted(bonds)), len(own))
        return list(atoms), key

    def _alternates_of(self, r: int, atoms: list[int]) -> tuple[tuple[int, ...], ...]:
        if len(self.chosen[r]) == len(self.indices[r]):
            return (tuple(atoms),)
        occurrences = _occurrences(zip(self.names[r], self.indices[r], strict=True))
        name_of = dict(zip(self.indices[r], self.names[r], strict=True))
        return _alternates([occurrences[name_of[atom]] if atom in name_of else [atom] for atom in atoms])


def residue_label(residue: Residue) -> str:
    """Name a residue as in ``A HIS 57B``."""
    return f"{residue.chain.id} {residue.name} {residue.id}{residue.insertionCode.strip()}"


def _bond_order(bond: Any) -> float:
    """Give the order of a topology's bond, 0 where it has none."""
    if bond.type is not None:
        return _ORDER_OF_TYPE.get(bond.type, _UNKNOWN_ORDER)
    return float(bond.order) if bond.order is not None else _UNKNOWN_ORDER


def _is_connected(atoms: list[int], bonds: list[tuple[int, int]]) -> bool:
    """Whether bonds join all atoms into one piece."""
    parent = {atom: atom for atom in atoms}

    def root(atom: int) -> int:
        while parent[atom] != atom:
            parent[atom] = atom = parent[parent[atom]]
        return atom

    for a, b in bonds:
        if a in parent and b in parent:
            parent[root(a)] = root(b)
    return len({root(atom) for atom in atoms}) <= 1
