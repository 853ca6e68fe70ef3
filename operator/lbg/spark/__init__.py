"""The PySpark side: a data source that publishes, preparation of a frame, and validation at scale.

This is the only package that imports `pyspark`. Shards are computed by Spark's native expressions and checked against
the core's vectors; everything about order, sequences and confirms is `lbg.publishing`.
"""
