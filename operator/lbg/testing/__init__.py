"""What ships for tests: the broker contract suite, the virtual clock, the simulation.

`contract` imports brokers and core only, so that an adapter outside this repository can run it. Nothing that runs in a
cluster may import anything of this package.
"""
