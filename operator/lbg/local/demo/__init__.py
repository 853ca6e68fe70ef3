"""The demo: a year of real departures through a whole group on this machine, with order checked against the source.

`telling.run` is the whole of it. `flights` is the data, `curve` and `load` the load, `handler` the work, `story` what
happens, `report` the verdict. Nothing here scales the group: the load rises and falls, and the group's own autoscaling
answers. This file imports nothing, since every consumer process imports the handler through it.
"""
