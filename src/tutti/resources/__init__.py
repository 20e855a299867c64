"""What a transaction changes: databases and tables behind one small port."""

from __future__ import annotations

from tutti.resources.gid import BranchId
from tutti.resources.port import Admission, CompletedStep, InDoubt, Outcome, Preflight, Resource, Vote, Work

__all__ = ["Admission", "BranchId", "CompletedStep", "InDoubt", "Outcome", "Preflight", "Resource", "Vote", "Work"]
