"""``report.html`` of a fit: what it says, from the fit that has just ended or from the folder of an earlier one."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .contents import FitContents, contents_of
    from .earlier_fit import corrections_of, read_contents
    from .page_of_fit import fit_page

__all__ = ["FitContents", "contents_of", "corrections_of", "fit_page", "read_contents"]

__getattr__, __dir__ = lazy_names(__name__)
