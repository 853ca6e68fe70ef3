"""Load balanced groups: ordered consumers that autoscale."""
