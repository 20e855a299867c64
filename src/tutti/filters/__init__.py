"""Content filters: CloudEvents SQL over an event's fields and its context attributes.

One parse serves several uses, each in its own module: `evaluate` (does this event pass?), `index` (which of very many
filters does it pass?), `subjects` (which subjects must the servers send at all?). The translation to a Spark column
belongs in `spark.py` beside them, with the same `Expression` as its input and nothing else of Tutti's.
"""

from __future__ import annotations

from tutti.filters.evaluate import Evaluator, Outcome, compile_filter
from tutti.filters.expression import Expression
from tutti.filters.filter import Filter
from tutti.filters.grammar import parse
from tutti.filters.index import Index
from tutti.filters.resolvers import EventResolver, MappingResolver, Record, Resolver
from tutti.filters.subjects import subject_tokens
from tutti.filters.values import MISSING, Fault, FaultKind
from tutti.model.declaration import RoutingAttribute

__all__ = [
    "MISSING",
    "Evaluator",
    "EventResolver",
    "Expression",
    "Fault",
    "FaultKind",
    "Filter",
    "Index",
    "MappingResolver",
    "Outcome",
    "Record",
    "Resolver",
    "RoutingAttribute",
    "compile_filter",
    "parse",
    "subject_tokens",
]
