"""Measurements and long random runs: what `make bench` and `make soak` run. Nothing here ships.

A bench is a module with one function `measure(quick)` that returns a result (`bench.figures`). It states its target, if
it has one, and measures ratios within one run, so that a slow machine moves both sides. No test asserts a time.
"""
