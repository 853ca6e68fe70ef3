"""The consumer runtime: what runs inside each pod, and nothing of what runs around it.

It drives the machines of `lbg.core` against a broker session and a membership store, both given from outside. It must
not know Kubernetes, local mode or a particular broker; those compose it.
"""
