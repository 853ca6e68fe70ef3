"""A whole group on one machine: the same YAML, the same plan and the same consumers as on Kubernetes.

Here live the second side of three seams: seats and the group's view as rows of a SQLite file,
consumers as child processes, and the supervisor that observes, plans and applies. What a group should look like is
decided in `lbg.core.plan`; what a consumer does with an event is decided in `lbg_consumer`. Neither belongs here.
"""
