"""The demo: a year of real departures through a whole group on this machine, with order checked against the source.

Here live the data, the load, the handler and the story. Nothing here scales the group: the load rises and falls, and
the group's own autoscaling answers it.
"""
