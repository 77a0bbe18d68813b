"""The pictures of a fit: how it went, where the model came to lie, and what became of each residue."""

from .overview import View, plot_overview
from .progress import plot_progress
from .residues import plot_residues

__all__ = ["View", "plot_overview", "plot_progress", "plot_residues"]
