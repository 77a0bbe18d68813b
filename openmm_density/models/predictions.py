"""Recognise predictions and read their confidence, which files keep in place of B factors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import gemmi
import numpy as np
from openmm import app
from scipy.spatial import cKDTree

from ..base.errors import InputError, as_argument
from .chemistry.residue_names import is_standard_polymer
from .confidence import Confidence, residue_means
from .model import Model

_PROGRAMS = re.compile(
    r"alphafold|colabfold|esm-?fold|boltz|openfold|rosettafold|omegafold|chai-?1|protenix|helixfold|model[ _-]?angelo",
    re.I,
)
_PROPER = (
    *("AlphaFold", "ColabFold", "ESMFold", "Boltz", "OpenFold", "RoseTTAFold"),
    *("OmegaFold", "Chai-1", "Protenix", "HelixFold", "ModelAngelo"),
)
_NAMES = {name.lower().replace("-", ""): name for name in _PROPER}

# With fewer residues a B column shows no pattern.
_FEWEST = 20
# The pattern, residue by residue: the largest and the median confidence, how similar neighbours are, and the rank correlation
# with the number of neighbours within 10 Å, which is positive for confidence and negative for B factors.
_HIGHEST, _USUAL, _SMOOTH, _BURIED, _NEAR = 70.0, 50.0, 0.6, 0.2, 10.0
_LOCAL = ("label_asym_id", "label_seq_id", "metric_id", "metric_value")
# How close a residue's mean B column is to its pLDDT if both are the same: AlphaFold 3 writes a value for each atom.
_SAME = 5.0


def as_in_file(model: Model) -> Model:
    """Return a model with its file's B column, whatever that holds."""
    found = model.confidence
    if found is None or found.column is None:
        return model
    alternates = replace(model.alternates, b_factors=found.column_of_alternates)
    return replace(model, b_factors=found.column, alternates=alternates)


def trimmed(model: Model, structure: gemmi.Structure, least: float) -> None:
    """Remove polymer residues with pLDDT below a number from a prediction's structure; note which.

    Raises InputError if the number is not one from 0 to 100, the model is not a prediction, or no residue would remain.
    """
    if not 0 <= least <= 100:
        raise InputError(
            "must be a confidence from 0 to 100",
            argument="trim",
            found=least,
            remedy="give a number such as 50",
        )
    plddt = residue_confidence(model)
    if plddt is None:
        raise InputError(
            "is only for predictions, and this model is not one",
            argument="trim",
            source=model.path,
            remedy=f"leave it out, or say {as_argument('predicted', 'yes')}",
        )
    residues = list(model.topology.residues())
    polymer = [k for k, residue in enumerate(residues) if is_standard_polymer(residue.name)]
    below = [k for k in polymer if plddt[k] < least]
    if len(below) == len(polymer):
        raise InputError(
            f"would remove the whole model, whose residues are all below {least:g}",
            argument="trim",
            source=model.path,
            remedy="give a lower number",
        )
    first = {residue.index: next(residue.atoms()).index for residue in residues}
    gone = {model.records[first[k]].residue for k in below}
    for chain in structure[0]:
        for place in reversed(range(len(chain))):
            each = chain[place]
            if (chain.name, each.seqid.num or 0, each.seqid.icode.strip(), each.name) in gone:
                del chain[place]
    left_out = stretches_of([residues[k] for k in below]) or "none"
    model.notes.append(f"Left out, as their pLDDT is below {least:g}: {left_out}.")


def stretches_of(residues: Sequence[app.topology.Residue]) -> str:
    """Return residues as text for a sentence, as in ``A 132-143, B 7``."""
    named: list[list[app.topology.Residue]] = []
    for residue in residues:
        if named and residue.index == named[-1][-1].index + 1 and residue.chain is named[-1][-1].chain:
            named[-1].append(residue)
        else:
            named.append([residue])
    ends = [
        dict.fromkeys(f"{run[end].id}{run[end].insertionCode.strip()}" for end in (0, -1)) for run in named
    ]
    return ", ".join(f"{run[0].chain.id} {'-'.join(each)}".strip() for run, each in zip(named, ends))


def plddt_by_residue(model: Model) -> dict[tuple[str, str, str], float]:
    """Return the pLDDT of each residue of a prediction, by chain, number and insertion code; empty for another model."""
    found = residue_confidence(model)
    if found is None:
        return {}
    return {
        (record.chain, str(record.residue_number), record.insertion_code): float(found[atom.residue.index])
        for atom, record in zip(model.topology.atoms(), model.records)
        if np.isfinite(found[atom.residue.index])
    }


def residue_confidence(model: Model) -> np.ndarray | None:
    """Return the pLDDT of each residue of a model, (R,) from 0 to 100, NaN where unknown; None if it is not a prediction."""
    if model.confidence is None:
        return None
    residue_of = np.array([atom.residue.index for atom in model.topology.atoms()])
    return residue_means(model.confidence.plddt, residue_of, model.topology.getNumResidues())


def add_local_metric(
    block: gemmi.cif.Block, plddt: Mapping[tuple[str, str, str], float], program: str
) -> None:
    """Add pLDDT (0 to 100) by ``auth_`` chain, number and insertion code as ``_ma_qa_metric_local`` to a block without it."""
    if not plddt or block.find_loop("_ma_qa_metric_local.metric_value"):
        return
    names = (
        "label_asym_id",
        "label_seq_id",
        "label_comp_id",
        "auth_asym_id",
        "auth_seq_id",
        "pdbx_PDB_ins_code",
    )
    label, number, component, *auth = (_column(block, name) for name in names)
    chain, own_number, code = auth[0] or label, auth[1] or number, auth[2] or [""] * len(label)
    rows: dict[tuple[str, str], list[str]] = {}
    for asym, seq, comp, *residue in zip(label, number, component, chain, own_number, code):
        value = plddt.get((residue[0], residue[1], residue[2]))
        if seq and value is not None and (asym, seq) not in rows:
            rows[asym, seq] = [str(len(rows) + 1), "1", asym, seq, comp, "1", f"{value:.2f}"]
    if not rows:
        return
    columns = dict(
        zip(
            ("ordinal_id", "model_id", *_LOCAL[:2], "label_comp_id", *_LOCAL[2:]),
            map(list, zip(*rows.values())),
        )
    )
    block.set_mmcif_category(
        "_ma_qa_metric.", {"id": ["1"], "mode": ["local"], "name": ["pLDDT"], "type": ["pLDDT"]}
    )
    block.set_mmcif_category("_ma_qa_metric_local.", columns)
    if program and not _PROGRAMS.search(" ".join(block.find_values("_software.name"))):
        _add_software(block, program)


def _column(block: gemmi.cif.Block, name: str) -> list[str]:
    """Return a column of the atoms, empty where unknown; no rows where there is no column."""
    values = block.find_values(f"_atom_site.{name}")
    return ["" if gemmi.cif.is_null(value) else gemmi.cif.as_string(value) for value in values]


def _add_software(block: gemmi.cif.Block, program: str) -> None:
    table = block.get_mmcif_category("_software.")
    count = len(next(iter(table.values()), []))
    new = {"name": program, "classification": "other", "pdbx_ordinal": str(count + 1)}
    tags = dict.fromkeys([*table, *new])
    columns = {tag: [*table.get(tag, [None] * count), new.get(tag)] for tag in tags}
    block.set_mmcif_category("_software.", columns)


def read_confidence(
    model: Model, structure: gemmi.Structure, sources: Sequence[gemmi.Residue], predicted: bool | None
) -> Confidence | None:
    """Return the confidence of a prediction; None for other models.

    `model`: as read, with its B column taken for B factors. `sources`: the residue of the file of each atom. `predicted`:
    the user's word on whether it is a prediction. Raises InputError if that is yes and nothing in the file can be pLDDT.
    """
    if predicted is False:
        return None
    column, text = model.b_factors, model.metadata.text
    residue_of = np.array([atom.residue.index for atom in model.topology.atoms()])
    n_residues = model.topology.getNumResidues()
    scale = _scale(column)
    values = None if scale is None else scale * column
    program = _program(structure, text)

    def in_column(told_by: str) -> Confidence:
        return Confidence(values, program, column, told_by, scale, model.alternates.b_factors)

    metric = _local_metric(text, sources) if "_ma_qa_metric_local." in text else None
    if metric is not None:
        off = np.inf
        if values is not None:
            means = (residue_means(each, residue_of, n_residues) for each in (values, metric))
            off = np.nanmedian(np.abs(np.subtract(*means)))
        told_by = "_ma_qa_metric_local"
        return in_column(told_by) if off < _SAME else Confidence(metric, program, None, told_by)
    if values is None:
        if predicted is None:
            return None
        raise InputError(
            "cannot be a prediction: its B column is not one of numbers from 0 to 100, and it has no _ma_qa_metric_local",
            source=model.path,
            remedy=f"give the file as it was predicted, or leave {as_argument('predicted')} out",
        )
    if predicted:
        return in_column(as_argument("predicted", "yes"))
    # A measured model may name the predictor that its start came from.
    if _is_measured(structure) or len(model.alternates):
        return None
    by_residue = residue_means(values, residue_of, n_residues)
    if program:  # a fitted prediction may have the prediction's header, and B factors
        return None if _burial(by_residue, model)[1] < 0 else in_column("its header")
    return in_column("the pattern of its B column") if _has_pattern(by_residue, model) else None


def _scale(column: np.ndarray) -> float | None:
    """Return the factor that turns a B column into pLDDT from 0 to 100, one of two; None where it cannot be pLDDT."""
    largest = float(column.max())
    if column.min() < 0 or not 0 < largest <= 100 or len(np.unique(column)) == 1:
        return None
    return 100.0 if largest <= 1.0 else 1.0


def _is_measured(structure: gemmi.Structure) -> bool:
    """Return whether a file says that its model was made from measurements."""
    method = dict(structure.info).get("_exptl.method", "").upper()
    return (
        structure.resolution > 0
        or bool(method and "THEORETICAL" not in method)
        or structure.cell.is_crystal()
    )


def _program(structure: gemmi.Structure, text: str) -> str:
    """Return the program that predicted a model according to its file; empty where it does not say."""
    said = [each.name for each in structure.meta.software]
    said += [value for name, value in dict(structure.info).items() if name.startswith("_struct")]
    # The lines before the atoms of a PDB file, or the name of an mmCIF file's block.
    said.append(re.split(r"^(?:ATOM|MODEL|HETATM|_|loop_)", text, maxsplit=1, flags=re.M)[0])
    found = _PROGRAMS.search("\n".join(said))
    if found is not None:
        key = re.sub(r"[ _-]", "", found[0].lower())
        return _NAMES.get(key, found[0])
    # OpenFold's remark has its settings, and no name; ESMFold writes OpenFold's header without a remark.
    if "no_recycling=" in said[-1]:
        return "OpenFold"
    return "ESMFold" if text.startswith("PARENT N/A") else ""


def _local_metric(text: str, sources: Sequence[gemmi.Residue]) -> np.ndarray | None:
    """Return the pLDDT of each atom's residue in ``_ma_qa_metric_local``, 0 to 100, or None."""
    blocks = (block for block in gemmi.cif.read_string(text) if block.find_loop("_atom_site.Cartn_x"))
    block = next(blocks)
    names = {row[0]: row[1] for row in block.find("_ma_qa_metric.", ["id", "name"])}
    kinds = {row[0]: row[1] for row in block.find("_ma_qa_metric.", ["id", "type"])}
    values: dict[tuple[str, str], float] = {}
    for asym, number, metric, value in block.find("_ma_qa_metric_local.", list(_LOCAL)):
        called = f"{names.get(metric, '')} {kinds.get(metric, '')}".lower()
        if "lddt" in called or not called.strip():
            values[asym, number] = gemmi.cif.as_number(value)
    keys = [(each.subchain, str(each.label_seq) if each.label_seq is not None else ".") for each in sources]
    found = np.array([values.get(key, np.nan) for key in keys])
    if not np.isfinite(found).any() or np.nanmin(found) < 0 or np.nanmax(found) > 100:
        return None
    return found * 100.0 if np.nanmax(found) <= 1.0 else found


def _has_pattern(by_residue: np.ndarray, model: Model) -> bool:
    """Return whether a B column (R,) looks like confidence: high, smooth, and highest where residues are buried."""
    own, burial = _burial(by_residue, model)
    if burial <= _BURIED or own.max() < _HIGHEST or np.median(own) < _USUAL:
        return False
    return bool(np.corrcoef(own[:-1], own[1:])[0, 1] >= _SMOOTH)


def _burial(by_residue: np.ndarray, model: Model) -> tuple[np.ndarray, float]:
    """Return the values of residues with a Cα, and their rank correlation with neighbour counts; 0 for few residues."""
    traces = [atom for atom in model.topology.atoms() if atom.name == "CA" and atom.element.symbol == "C"]
    own = by_residue[[atom.residue.index for atom in traces]]
    if len(own) < _FEWEST or own.std() == 0:
        return own, 0.0
    places = model.positions[[atom.index for atom in traces]]
    around = cKDTree(places).query_ball_point(places, _NEAR, return_length=True)
    from scipy.stats import spearmanr  # which takes seconds to import

    return own, float(spearmanr(own, around)[0]) if np.ptp(around) else 0.0
