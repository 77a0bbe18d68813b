"""What a deposition and its paper ask of a model: Table 1, and the mmCIF categories on fit and refinement."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .figures import deposition_figures
    from .table import table_one

__all__ = ["deposition_figures", "table_one"]

__getattr__, __dir__ = lazy_names(__name__)
