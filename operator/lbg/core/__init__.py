"""Pure rules and machines: no I/O, no clock, no randomness, no third party but pydantic and xxhash."""
