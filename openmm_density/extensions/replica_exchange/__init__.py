"""Replicas of a System that exchange: what one of them cannot reach in its density, another finds where the density pulls less.

`ReplicaExchange` runs them; `Ladder` says in what they differ; `metropolis` has the arithmetic of exchanges and what it reports,
`replicas` how they are simulated: each in its own Context, or all in one on a GPU.
"""

from .ladder import Ladder, Rung
from .metropolis import ExchangeRecord
from .replica_exchange import ExchangeState as ExchangeState
from .replica_exchange import ReplicaExchange
from .replicas import LeftDensity, SetUp

__all__ = ["ExchangeRecord", "Ladder", "LeftDensity", "ReplicaExchange", "Rung", "SetUp"]
