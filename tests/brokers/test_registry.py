"""The registry: from a URL's scheme to an adapter."""

from __future__ import annotations

import importlib.metadata

import pytest

from lbg.brokers import base, registry
from lbg.brokers.embedded.client import EmbeddedAdapter


@pytest.mark.parametrize("url", ["embedded:///run/lbg.sock", "embedded+tcp://127.0.0.1:7000"])
def test_both_schemes_of_the_embedded_broker_lead_to_its_adapter(url: str) -> None:
    """Finds the embedded adapter for the Unix socket and for the loopback port."""
    assert isinstance(registry.adapter(url), EmbeddedAdapter)


@pytest.mark.parametrize("url", ["nonsense://host", "/run/lbg.sock", ""])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(url: str) -> None:
    """Names what could have been meant, in one line."""
    with pytest.raises(base.Unsupported) as refused:
        registry.adapter(url)
    assert "embedded" in refused.value.message
    assert "\n" not in refused.value.message


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says which module is missing and which extra brings it."""
    entry = registry.Entry("lbg_no_such_client", "Adapter", extra="rabbitmq")
    monkeypatch.setitem(registry.ADAPTERS, "amqp", entry)
    with pytest.raises(base.Unsupported) as refused:
        registry.adapter("amqp://host")
    assert "lbg_no_such_client" in refused.value.message
    assert "load-balanced-groups[rabbitmq]" in refused.value.message


def test_an_adapter_outside_this_repository_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks a scheme up among installed entry points when it is not one of ours."""

    class Point:
        module, attr = "lbg.brokers.embedded.client", "EmbeddedAdapter"

    def entry_points(*, group: str, name: str) -> list[type[Point]]:
        return [Point] if (group, name) == (registry.ENTRY_POINTS, "theirs") else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert isinstance(registry.adapter("theirs://host"), EmbeddedAdapter)
