"""The LoadBalancedGroup object: its model, and reading it from YAML with errors that its author can act on.

Callers use the names below; the modules behind them divide the work: `group`, `consumers` and `autoscaling` are the
models, `fields` the kinds of field, `loading` the YAML, `explain` and `problems` the errors. What a group means (which
pods, which queues) does not belong here.
"""

from __future__ import annotations

from lbg.core.spec.autoscaling import (
    Autoscaling,
    Behavior,
    Mode,
    PolicyType,
    Rules,
    ScaleDown,
    ScaleUp,
    Schedule,
    SelectPolicy,
    StepPolicy,
    Targets,
)
from lbg.core.spec.consumers import (
    Consumers,
    Handler,
    HttpHandler,
    OnBudgetExceeded,
    OnPoison,
    Output,
    Republish,
    Retry,
)
from lbg.core.spec.group import (
    API_VERSION,
    KIND,
    Assignment,
    Broker,
    BrokerKind,
    DeletionPolicy,
    GroupSpec,
    Hashing,
    LoadBalancedGroup,
    Metadata,
    Overflow,
    Park,
    Queues,
    QueueType,
    SecretRef,
    Stream,
)
from lbg.core.spec.loading import contract, dump, load, parse
from lbg.core.spec.problems import Problem, SpecError

__all__ = [
    "API_VERSION",
    "KIND",
    "Assignment",
    "Autoscaling",
    "Behavior",
    "Broker",
    "BrokerKind",
    "Consumers",
    "DeletionPolicy",
    "GroupSpec",
    "Handler",
    "Hashing",
    "HttpHandler",
    "LoadBalancedGroup",
    "Metadata",
    "Mode",
    "OnBudgetExceeded",
    "OnPoison",
    "Output",
    "Overflow",
    "Park",
    "PolicyType",
    "Problem",
    "QueueType",
    "Queues",
    "Republish",
    "Retry",
    "Rules",
    "ScaleDown",
    "ScaleUp",
    "Schedule",
    "SecretRef",
    "SelectPolicy",
    "SpecError",
    "StepPolicy",
    "Stream",
    "Targets",
    "contract",
    "dump",
    "load",
    "parse",
]
