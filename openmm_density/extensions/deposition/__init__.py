"""What a deposition and its paper ask of a model: Table 1, and the mmCIF categories on fit and refinement."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .diffraction import crystal_of_data as crystal_of_data
    from .diffraction import diffraction_figures as diffraction_figures
    from .figures import deposition_figures
    from .table import OF_OWN_PHASES as OF_OWN_PHASES
    from .table import table_one
    from .table_files import AS_IT_WAS as AS_IT_WAS
    from .table_files import write_table_of_model as write_table_of_model

# What users import; the others are read from here by this project.
__all__ = ["deposition_figures", "table_one"]

__getattr__, __dir__ = lazy_names(__name__)
