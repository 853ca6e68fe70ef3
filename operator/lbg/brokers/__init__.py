"""The broker contract and its adapters; nothing here knows Kubernetes or the consumer runtime."""
