"""Where tasks and data come from. Formats with a dependency of their own import it only when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from policytest.sources.files import Model, load_model, save_model
from policytest.sources.policy_files import load_policy, save_policy

if TYPE_CHECKING:
    from policytest.sources.bins import Bins, discretise
    from policytest.sources.datasets import Dataset, minari
    from policytest.sources.diagnosed import diagnose_log
    from policytest.sources.environments import Environment, gymnasium
    from policytest.sources.log import Log
    from policytest.sources.policies import policy
    from policytest.sources.tables import logs

# Imported on first use.
_HOME = {
    "Bins": "bins",
    "Dataset": "datasets",
    "Environment": "environments",
    "Log": "log",
    "diagnose_log": "diagnosed",
    "discretise": "bins",
    "gymnasium": "environments",
    "logs": "tables",
    "minari": "datasets",
    "policy": "policies",
}

__all__ = [
    "Bins",
    "Dataset",
    "Environment",
    "Log",
    "Model",
    "diagnose_log",
    "discretise",
    "gymnasium",
    "load_model",
    "load_policy",
    "logs",
    "minari",
    "policy",
    "save_model",
    "save_policy",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'policytest.sources' has no attribute {name!r}")
    return getattr(importlib.import_module(f"policytest.sources.{_HOME[name]}"), name)
