"""`make soak`: long random runs of whole groups, in each handover ability, judged by the validator.

A run scales up and down at random, kills consumers with SIGKILL at random, publishes all the while, and must end with
no order error, no gap, no duplicate on a planned move, and after each death at most the duplicates that were in hand.
A violation keeps its run folder. The runs that are finished stand in a file, so that the soak can be interrupted.
"""
