"""The operator process: events in, `reconcile(observe, plan, apply)` out.

This is the only package that imports kopf. Handlers put `(namespace, name)` on the work queue and do nothing else; what
to do is decided by the pure `plan` of the core, and `apply` is the only writer. Decisions written here would escape
local mode and the simulation, which run the same plan without Kubernetes.
"""
