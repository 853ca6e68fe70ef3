"""The consumer runtime that runs inside each pod."""
