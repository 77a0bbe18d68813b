"""Many fits: each in a folder and a process of its own, here or by Dask elsewhere; their tables, page and consensus."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .batch import Batch
    from .consensus import Consensus, consensus_of
    from .job_results import JobResult
    from .job_table import read_jobs
    from .jobs import Job, jobs_of

__all__ = ["Batch", "Consensus", "Job", "JobResult", "consensus_of", "jobs_of", "read_jobs"]

__getattr__, __dir__ = lazy_names(__name__)
