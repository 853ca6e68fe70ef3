"""The Kubernetes client, leases and server-side apply.

This is the only package that imports the `kubernetes` client. It turns the seams of the core (seats, group view,
consumers) into API calls and answers in the core's own values. It decides nothing, and it knows neither kopf nor the
reconcile loop: those are `lbg.controller`.
"""
