"""What is written of an ensemble: ``ensemble.cif``, a section of ``summary.json``, and a sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gemmi
import numpy as np
from openmm import app

from ...base.atomic_files import write_text
from ...base.errors import InputError
from ...base.page_blocks import Block, Plot, Section, Table, Text
from ...base.units import ANGSTROM_PER_NANOMETER
from ...base.wording import counted, listing, residue_label
from ...fitting.extension import Told
from ...models.kept_files import atom_block
from ...models.preparation import Prepared
from ...models.structure_files import document_of_models, prepared_header
from ...models.written_structures import Header
from ...report.residue_plots import value_figure
from .search import EnsembleResult

ENSEMBLE = "ensemble.cif"
_UNITS = {"rmsf": "Å", "band": "Å", "strength_of_noise": "kJ/mol per fitted atom"}


def write_ensemble(path: Path, prepared: Prepared, ensemble: EnsembleResult | None) -> None:
    """Write all replicas as models of one file, in the order of `ensemble_summary`; without any, remove an earlier one's."""
    if ensemble is None:
        path.unlink(missing_ok=True)
        return
    order, numbers = _order(ensemble)
    write_ensemble_cif(
        path,
        prepared.topology,
        ensemble.models[order],
        ensemble.weights[order].tolist(),
        numbers,
        prepared.b_factors,
        prepared_header(prepared),
    )


def ensemble_summary(ensemble: EnsembleResult | None, prepared: Prepared) -> dict[str, Any] | None:
    """Return what ``summary.json`` says of an ensemble; None where there is none.

    Returns ``replicas``; ``weights`` in the order of the models of ``ensemble.cif``, by conformation and weight;
    ``conformations``, each with its ``weight`` and the ``models`` that are it; ``verdict``, see `Verdict`;
    ``cc_single`` and ``cc_ensemble`` with the whole map; ``strength`` and ``strength_of_noise``; ``unknown_ligands``,
    see `unknown_ligands`, and ``held_ligands``, see `held_ligands`; ``rmsf`` of each residue in Å, with its
    ``residue``; ``course``, a row after each block of steps.
    """
    if ensemble is None:
        return None
    order, numbers = _order(ensemble)
    return {
        "replicas": len(order),
        "weights": np.round(ensemble.weights[order], 5).tolist(),
        "conformations": [
            {
                "weight": round(conformation.weight, 5),
                "models": [place + 1 for place, own in enumerate(numbers) if own == number],
            }
            for number, conformation in enumerate(ensemble.conformations, start=1)
        ],
        "verdict": ensemble.verdict.as_dict(),
        "cc_single": ensemble.cc_single,
        "cc_ensemble": ensemble.cc_ensemble,
        "strength": ensemble.strength,
        "strength_of_noise": ensemble.strength_of_noise,
        "unknown_ligands": unknown_ligands(prepared, ensemble.models[order]),
        "held_ligands": held_ligands(ensemble, order),
        "rmsf": [{"residue": label, "rmsf": value} for label, value in _fluctuations(ensemble, prepared)],
        "course": ensemble.rows,
    }


def unknown_ligands(prepared: Prepared, models: np.ndarray) -> list[dict[str, Any]]:
    """Return the ligands of models (R, N, 3) in Å that left what their potentials know: ``residue`` and ``models``, from 1."""
    found = []
    for placed in prepared.potentials:
        shapes = models[:, placed.atoms] / ANGSTROM_PER_NANOMETER
        own = [
            number
            for number, shape in enumerate(shapes, start=1)
            if placed.potential.disagreement(shape) > placed.potential.bound
        ]
        if own:
            found.append({"residue": placed.label, "models": own})
    return found


def held_ligands(ensemble: EnsembleResult, order: Sequence[int]) -> list[dict[str, Any]]:
    """Return how often springs came to hold each ligand with a learned potential, where it had left what that knows."""
    count = len(ensemble.ligands) // len(ensemble.models)
    found = []
    for k in range(count):
        of_models = [ensemble.ligands[replica * count + k] for replica in order]
        times = [ligand["held_times"] for ligand in of_models]
        if any(times):
            found.append({"residue": of_models[0]["label"], "held_times": times})
    return found


def ensemble_told(ensemble: EnsembleResult | None, prepared: Prepared) -> Told:
    """Return what is said of an ensemble: its figures (None where there is none), and notes."""
    figures = ensemble_summary(ensemble, prepared)
    if figures is None:
        return Told({"ensemble": None})
    notes = [
        ensemble_in_words({"ensemble": figures}),
        *(
            f"{each['residue']} has a shape that its potential does not know in "
            f"{listing([f'model {k}' for k in each['models']])} of {ENSEMBLE}, where springs held it back: "
            "do not believe it there."
            for each in figures["unknown_ligands"]
        ),
        *(
            f"{each['residue']} left what its potential knows in {counted(sum(map(bool, each['held_times'])), 'replica')} of the "
            f"{len(each['held_times'])} of {ENSEMBLE}, where springs held it {counted(sum(each['held_times']), 'time')}."
            for each in figures["held_ligands"]
        ),
    ]
    return Told({"ensemble": figures}, notes, units=_UNITS)


def rmsf_of_input(ensemble: EnsembleResult, prepared: Prepared) -> list[float | None]:
    """Return the fluctuation of each residue of the input in Å; None of one that was not simulated."""
    by_label = dict(_fluctuations(ensemble, prepared))
    return [by_label.get(residue_label(each)) for each in prepared.model.topology.residues()]


def _fluctuations(ensemble: EnsembleResult, prepared: Prepared) -> list[tuple[str, float]]:
    labels = map(residue_label, prepared.topology.residues())
    return [(label, round(float(value), 3)) for label, value in zip(labels, ensemble.fluctuations)]


def ensemble_in_words(summary: Mapping[str, Any]) -> str | None:
    """Return an ensemble in a line or two; None where there is none."""
    told = summary.get("ensemble")
    if not told:
        return None
    shares = ", ".join(f"{each['weight']:.2f}" for each in told["conformations"])
    found = counted(len(told["conformations"]), "conformation")
    return (
        f"{told['replicas']} replicas are {found} (weights {shares}), CC {told['cc_ensemble']:.3f} with the map, "
        f"one model {told['cc_single']:.3f}. {told['verdict']['sentence']}"
    )


def _order(ensemble: EnsembleResult) -> tuple[list[int], list[int]]:
    """Return replicas by conformation and weight, and the conformation of each, from 1."""
    pairs = [
        (replica, number)
        for number, conformation in enumerate(ensemble.conformations, start=1)
        for replica in conformation.replicas
    ]
    return [replica for replica, _ in pairs], [number for _, number in pairs]


CATEGORY = "_openmm_density_replica."
"""The loop that tells of each model its weight and conformation."""


def write_ensemble_cif(
    path: str | os.PathLike[str],
    topology: app.Topology,
    models: Sequence[Any],
    weights: Sequence[float],
    conformations: Sequence[int],
    b_factors: Sequence[float] | np.ndarray | None = None,
    header: Header | None = None,
) -> None:
    """Write models as mmCIF, numbered from 1 in their order.

    Weights are in a loop of their own, ``_openmm_density_replica``, with the number of the conformation that each is of, and
    in ``_ihm_multi_state_modeling``, as integrative models have populations (Vallat et al. 2018). `models` (N, 3) in Å where
    plain.
    """
    if not len(models) or not len(models) == len(weights) == len(conformations):
        raise InputError(
            "must be one for each model",
            argument="weights",
            found=f"{len(weights)} for {len(models)}",
            remedy="give as many numbers",
        )
    header = header or Header()
    document = document_of_models(path, topology, models, b_factors, header)
    _add_weights(atom_block(document), weights, conformations)
    write_text(path, document.as_string())


def _add_weights(block: gemmi.cif.Block, weights: Sequence[float], conformations: Sequence[int]) -> None:
    loop = block.init_loop(CATEGORY, ["model_number", "weight", "conformation"])
    for number, (weight, conformation) in enumerate(zip(weights, conformations), start=1):
        loop.add_row([str(number), f"{weight:.5f}", str(conformation)])
    states = block.init_loop(
        "_ihm_multi_state_modeling.",
        ["ordinal_id", "state_id", "state_group_id", "population_fraction", "state_type", "state_name"],
    )
    for state in sorted(set(conformations)):
        share = sum(weight for weight, own in zip(weights, conformations) if own == state)
        states.add_row(
            [str(state), str(state), "1", f"{share:.5f}", ".", gemmi.cif.quote(f"conformation {state}")]
        )


def ensemble_section(summary: Mapping[str, Any]) -> Section | None:
    """Return the section; None for a fit of one model alone."""
    told = summary.get("ensemble")
    words = ensemble_in_words(summary)
    if not told or words is None:
        return None
    verdict = told["verdict"]
    agreement = [
        ("with the map", told["cc_single"], told["cc_ensemble"]),
        ("with what was fitted, B by residue", verdict["cc_work_single"], verdict["cc_work_ensemble"]),
        ("free", verdict["cc_free_single"], verdict["cc_free_ensemble"]),
        ("free, B by residue", verdict["cc_free_single_b"], verdict["cc_free_ensemble_b"]),
    ]
    main = verdict.get("main")
    alone = [] if main is None else [Text(_alone(main, verdict))]
    blocks: list[Block] = [
        Text(words),
        Table(
            "Correlation over the voxels near an atom of either",
            ["one model", "ensemble"],
            [(name, [f"{one:.3f}", f"{many:.3f}"]) for name, one, many in agreement],
        ),
        *alone,
        Table(
            "Conformations; ensemble.cif has all replicas as models",
            ["weight", "models", "weight of each"],
            [
                (
                    str(number),
                    [
                        f"{each['weight']:.3f}",
                        ", ".join(map(str, each["models"])),
                        ", ".join(f"{told['weights'][model - 1]:.3f}" for model in each["models"]),
                    ],
                )
                for number, each in enumerate(told["conformations"], start=1)
            ],
        ),
        Plot(
            "rmsf",
            "How far residues vary over the ensemble (click on a residue to see it)",
            "Root mean square fluctuation of each residue over the weighted replicas, in Å.",
            value_figure(summary["residues"], "rmsf", "RMSF", "RMSF (Å)"),
        ),
    ]
    return Section("ensemble", "One model, or many?", blocks)


def _alone(main: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """Return what the heaviest conformation of an ensemble says without the others."""
    gain = verdict["cc_free_ensemble_b"] - main["cc_free_b"]
    return (
        f"The heaviest conformation alone, with B by residue: free {main['cc_free_b']:.3f}. The others add {gain:+.3f} ± "
        f"{main['standard_error']:.3f}; an ensemble is asked for only where that is sure."
    )
