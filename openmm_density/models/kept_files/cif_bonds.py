"""``_struct_conn`` and ``_struct_mon_prot_cis`` of an mmCIF file, updated for the present positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import gemmi
import numpy as np

from ..written_structures import Header
from .cif_atoms import converted
from .numbers import leading_number, rewritten

_BONDS = "_struct_conn."
_NEW_BONDS = (
    "id",
    "conn_type_id",
    *(
        f"{prefix}ptnr{side}_{what}"
        for side in (1, 2)
        for prefix, what in (
            *(("", "label_asym_id"), ("", "label_comp_id"), ("", "label_seq_id"), ("", "label_atom_id")),
            *(
                ("pdbx_", "label_alt_id"),
                ("pdbx_", "PDB_ins_code"),
                ("", "auth_asym_id"),
                ("", "auth_seq_id"),
            ),
            ("", "symmetry"),
        )
    ),
    "pdbx_dist_value",
)
_PEPTIDES = "_struct_mon_prot_cis."
_NEW_PEPTIDES = (
    "pdbx_id",
    *(
        *(
            "label_comp_id",
            "label_seq_id",
            "label_asym_id",
            "pdbx_PDB_ins_code",
            "auth_seq_id",
            "auth_asym_id",
        ),
        *("pdbx_label_comp_id_2", "pdbx_label_seq_id_2", "pdbx_label_asym_id_2", "pdbx_PDB_ins_code_2"),
        *("pdbx_auth_seq_id_2", "pdbx_auth_asym_id_2", "pdbx_PDB_model_num", "pdbx_omega_angle"),
    ),
)

_Key = tuple[str, ...]


def _first_rows(keys: Sequence[_Key]) -> dict[_Key, int]:
    return {key: row for row, key in zip(range(len(keys) - 1, -1, -1), reversed(keys))}


def _plain(value: str) -> str:
    return gemmi.cif.as_string(value).strip()


class AtomNames:
    """The atoms of rows of ``_atom_site`` (`columns`), by chain, number, insertion code, name and label."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self.columns = columns

    @cached_property
    def keys(self) -> list[_Key]:
        """The key of each row."""
        columns, blank = self.columns, np.full(len(self.columns["Cartn_x"]), ".", dtype=object)

        def first_of(*names: str) -> np.ndarray:
            return next((columns[name] for name in names if name in columns), blank)

        # As gemmi reads it: the PDB's name where the authors' is missing.
        authors = first_of("auth_asym_id")
        chains = np.where(converted(gemmi.cif.is_null, authors), first_of("label_asym_id"), authors)
        numbers, codes = first_of("auth_seq_id", "label_seq_id"), first_of("pdbx_PDB_ins_code")
        names, altlocs = first_of("label_atom_id", "auth_atom_id"), first_of("label_alt_id")
        return list(zip(*(converted(_plain, each) for each in (chains, numbers, codes, names, altlocs))))

    @cached_property
    def counts(self) -> Counter[_Key]:
        """How many rows have a key."""
        return Counter(self.keys)

    @cached_property
    def _rows(self) -> dict[_Key, int]:
        return _first_rows(self.keys)

    @cached_property
    def _unlabelled(self) -> dict[_Key, int]:
        return _first_rows([key[:4] for key in self.keys])

    def find(self, key: _Key) -> int | None:
        """Return the row of an atom; with any label where the key has none."""
        return self._rows.get(key) if key[4] else self._rows.get(key, self._unlabelled.get(key[:4]))

    def find_residue(self, chain: str, number: str, code: str, name: str) -> int | None:
        """Return the first row of an atom of a residue."""
        return self._unlabelled.get((chain, number, code, name))

    def value(self, row: int, name: str) -> str:
        """Return the value of a column in a row, as written."""
        return self.columns[name][row] if name in self.columns else "?"


def _key_of_end(table: Mapping[str, list[str]], row: int, side: int) -> _Key:
    def value(*names: str) -> str:
        return next((_plain(table[name][row]) for name in names if name in table), "")

    return (
        value(f"ptnr{side}_auth_asym_id") or value(f"ptnr{side}_label_asym_id"),
        value(f"ptnr{side}_auth_seq_id", f"ptnr{side}_label_seq_id"),
        value(f"pdbx_ptnr{side}_PDB_ins_code"),
        value(f"ptnr{side}_label_atom_id"),
        value(f"pdbx_ptnr{side}_label_alt_id"),
    )


def _leads_away(table: Mapping[str, list[str]], row: int) -> bool:
    operators = [_plain(table[name][row]) for name in ("ptnr1_symmetry", "ptnr2_symmetry") if name in table]
    return len(operators) == 2 and "" not in operators and operators[0] != operators[1]


def write_bonds(
    block: gemmi.cif.Block,
    before: AtomNames,
    now: AtomNames,
    positions: np.ndarray,
    links: Sequence[tuple[int, int, bool]],
    header: Header,
    moved: bool,
) -> None:
    """Write the present lengths into ``_struct_conn``, and the links that it lacks, between `positions` in Å."""
    table = block.get_mmcif_category(_BONDS, raw=True)
    count = len(next(iter(table.values()), ()))
    kept, ends = _kept_bonds(table, before, now, header)
    changed = len(kept) < count
    if moved and "pdbx_dist_value" in table:
        for row, (first, second, away) in ends.items():
            old = table["pdbx_dist_value"][row]
            if not gemmi.cif.is_null(old):
                length = _length(positions[first], positions[second], away, header)
                table["pdbx_dist_value"][row] = rewritten(old, length, 3)
                changed = True
    known = {frozenset((first, second)) for first, second, away in ends.values() if not away}
    new = [
        (first, second)
        for first, second, away in links
        if not away
        and frozenset((first, second)) not in known
        and now.counts[now.keys[first]] == now.counts[now.keys[second]] == 1
    ]
    if not (changed or new):
        return
    table = {name: [values[row] for row in kept] for name, values in table.items()} or {
        name: [] for name in _NEW_BONDS
    }
    _add_bonds(table, new, now, positions)
    _store(block, _BONDS, table)
    if new:
        _declare_kinds(block, table["conn_type_id"])


def _kept_bonds(
    table: Mapping[str, list[str]], before: AtomNames, now: AtomNames, header: Header
) -> tuple[list[int], dict[int, tuple[int, int, bool]]]:
    """Return the rows to keep and, where their atoms are written, these atoms and whether the second is a symmetry copy."""
    kept, ends = [], {}
    for row in range(len(next(iter(table.values()), ()))):
        keys = [_key_of_end(table, row, side) for side in (1, 2)]
        first, second = (now.find(key) for key in keys)
        # An atom of a conformer that is not written, or is written under another name.
        left_out = any(now.find(key) is None and before.find(key) is not None for key in keys)
        away = _leads_away(table, row)
        if left_out or (away and not header.space_group):
            continue
        kept.append(row)
        if first is not None and second is not None:
            ends[row] = (first, second, away)
    return kept, ends


def _declare_kinds(block: gemmi.cif.Block, kinds: Sequence[str]) -> None:
    """Add kinds of bonds to the file's list of kinds."""
    loop = block.find_loop("_struct_conn_type.id").get_loop()
    if loop is None:
        return
    known = {_plain(value) for value in block.find_values("_struct_conn_type.id")}
    for kind in dict.fromkeys(kinds):
        if _plain(kind) not in known:
            loop.add_row([kind if tag == "_struct_conn_type.id" else "?" for tag in loop.tags])


def _store(block: gemmi.cif.Block, category: str, table: Mapping[str, list[str]]) -> None:
    if next(iter(table.values())):
        block.set_mmcif_category(category, table, raw=True)
    else:
        block.find_mmcif_category(category).erase()


def _length(first: np.ndarray, second: np.ndarray, away: bool, header: Header) -> float:
    if not away or header.cell is None:
        return float(np.linalg.norm(np.subtract(first, second)))
    structure = gemmi.Structure()
    structure.cell = gemmi.UnitCell(*header.cell)
    structure.spacegroup_hm = header.space_group
    structure.setup_cell_images()
    ends = (gemmi.Position(*place) for place in (first, second))
    return structure.cell.find_nearest_image(*ends, gemmi.Asu.Different).dist()


def _add_bonds(
    table: dict[str, list[str]],
    new: Sequence[tuple[int, int]],
    now: AtomNames,
    positions: np.ndarray,
) -> None:
    taken = {_plain(value) for value in table.get("id", ())}
    counts: Counter[str] = Counter()
    for ends in new:
        metal = any(gemmi.Element(_plain(now.value(row, "type_symbol"))).is_metal for row in ends)
        sulphurs = all(now.keys[row][3] == "SG" for row in ends)
        kind = "metalc" if metal else "disulf" if sulphurs else "covale"
        counts[kind] += 1
        while f"{kind}{counts[kind]}" in taken:
            counts[kind] += 1
        told = {"id": f"{kind}{counts[kind]}", "conn_type_id": kind}
        length = float(np.linalg.norm(np.subtract(*(positions[row] for row in ends))))
        told["pdbx_dist_value"] = f"{length:.3f}"
        for side, row in enumerate(ends, start=1):
            for name in ("label_asym_id", "label_comp_id", "label_seq_id", "label_atom_id"):
                told[f"ptnr{side}_{name}"] = now.value(row, name)
            for name in ("auth_asym_id", "auth_seq_id", "auth_comp_id"):
                told[f"ptnr{side}_{name}"] = now.value(row, name)
            told[f"pdbx_ptnr{side}_PDB_ins_code"] = now.value(row, "pdbx_PDB_ins_code")
            told[f"pdbx_ptnr{side}_label_alt_id"] = now.value(row, "label_alt_id")
            told[f"ptnr{side}_symmetry"] = "1_555"
        for name, values in table.items():
            values.append(told.get(name, "?"))


def write_cis_peptides(
    block: gemmi.cif.Block, now: AtomNames, peptides: Sequence[gemmi.CisPep], moved: bool
) -> None:
    """Write the present cis peptides into ``_struct_mon_prot_cis``; rows that are still true stay."""
    table = block.get_mmcif_category(_PEPTIDES, raw=True)
    if not (table or peptides):
        return
    chains = {key[0] for key in now.keys}
    current = {
        tuple(
            (
                # Where the file leaves a chain unnamed, the topology's chain was given a letter.
                *(end.chain_name if end.chain_name in chains else "", str(end.res_id.seqid.num)),
                end.res_id.seqid.icode.strip(),
            )
            for end in (peptide.partner_c, peptide.partner_n)
        ): peptide.reported_angle
        for peptide in peptides
    }
    kept, changed = [], False
    for row in range(len(next(iter(table.values()), ()))):
        key = _key_of_peptide(table, row)
        angle = current.pop(key, None)
        ends = [now.find_residue(*end, name) for end, name in zip(key, ("C", "N"))]
        if angle is None and None not in ends:
            changed = True
            continue
        kept.append(row)
        if moved and angle is not None and "pdbx_omega_angle" in table:
            old = table["pdbx_omega_angle"][row]
            table["pdbx_omega_angle"][row] = (
                old if np.isnan(leading_number(old)) else rewritten(old, angle, 2)
            )
            changed = True
    if not (changed or current):
        return
    table = {name: [values[row] for row in kept] for name, values in table.items()} or {
        name: [] for name in _NEW_PEPTIDES
    }
    for key, angle in current.items():
        told = {"pdbx_PDB_model_num": "1", "pdbx_omega_angle": f"{angle:.2f}"}
        told["pdbx_id"] = str(len(next(iter(table.values()))) + 1)
        for end, name, prefix, suffix in zip(key, ("C", "N"), ("", "pdbx_"), ("", "_2")):
            row = now.find_residue(*end, name)
            for column in ("label_comp_id", "label_seq_id", "label_asym_id", "auth_seq_id", "auth_asym_id"):
                told[f"{prefix}{column}{suffix}"] = now.value(row, column)
            told[f"pdbx_PDB_ins_code{suffix}"] = now.value(row, "pdbx_PDB_ins_code")
        for name, values in table.items():
            values.append(told.get(name, "?"))
    _store(block, _PEPTIDES, table)


def _key_of_peptide(table: Mapping[str, list[str]], row: int) -> tuple[_Key, _Key]:
    def value(*names: str) -> str:
        return next((_plain(table[name][row]) for name in names if name in table), "")

    return (
        (
            value("auth_asym_id") or value("label_asym_id"),
            value("auth_seq_id", "label_seq_id"),
            value("pdbx_PDB_ins_code"),
        ),
        (
            value("pdbx_auth_asym_id_2") or value("pdbx_label_asym_id_2"),
            value("pdbx_auth_seq_id_2", "pdbx_label_seq_id_2"),
            value("pdbx_PDB_ins_code_2"),
        ),
    )
