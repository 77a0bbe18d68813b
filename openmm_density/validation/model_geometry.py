"""`geometry_of_model`: the geometry of a model as it was read, with the hydrogens that are built for its clashes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base.wording import one_line
from ..models.model import Model
from ..models.preparation import prepare
from .all_atom_contacts import contacts_of_prepared
from .geometry import GeometryReport, ModelGeometry


def geometry_of_model(model: Model, positions: np.ndarray | None = None) -> GeometryReport:
    """Assess the geometry of a model as it was read, for whose clashes hydrogens are built; a note says where they cannot be.

    `positions` (N, 3) in Å; by default the model's own.
    """
    model = model if positions is None else replace(model, positions=positions)
    report = ModelGeometry(model.topology).report(model.positions, clashes=False)
    try:
        prepared = prepare(model)
        contacts = contacts_of_prepared(
            prepared.topology, prepared.input_index, prepared.positions, model.occupancies
        )
    except Exception as error:
        missing = f"No clashscore, as hydrogens could not be built ({one_line(error)})."
        return replace(report, notes=[*report.notes, missing])
    return replace(report, clash_count=len(contacts.clashes), clashscore=contacts.clashscore)
