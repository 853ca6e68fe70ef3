"""The published form of a contract: exact fields, there and back, and nothing out of bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import contract
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm

PUBLISHED = {"prefix": "orders", "count": 256, "algorithm": "xxh64", "queues": 12}


def test_the_published_form_is_exact() -> None:
    """Producers in other languages read these four fields."""
    assert Contract("orders", 256, Algorithm.XXH64, 12).to_mapping() == PUBLISHED


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", fullmatch=True),
    st.integers(1, 65_536),
    st.sampled_from(Algorithm),
    st.data(),
)
def test_a_contract_survives_publication(prefix: str, count: int, algorithm: Algorithm, data: st.DataObject) -> None:
    """What is read back is equal, also with fields of a later version beside it."""
    queues = data.draw(st.integers(1, min(count, 10_000)))
    written = Contract(prefix, count, algorithm, queues)
    assert contract.from_mapping({**written.to_mapping(), "later": 1}) == written


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"prefix": ""}, "prefix: use 1 to 200 letters"),
        ({"prefix": "a b"}, "prefix: use 1 to 200 letters"),
        ({"prefix": "a\n"}, "prefix: use 1 to 200 letters"),
        ({"prefix": ".."}, "prefix: use 1 to 200 letters"),
        ({"prefix": "a" * 201}, "prefix: use 1 to 200 letters"),
        ({"prefix": 3}, "prefix: expected a string"),
        ({"count": 0}, "count: 0 is out of bounds: use 1 to 65536"),
        ({"count": 65_537}, "count: 65537 is out of bounds: use 1 to 65536"),
        ({"count": True}, "count: expected an integer"),
        ({"count": "256"}, "count: expected an integer"),
        ({"queues": 0}, "queues: 0 is out of bounds: use 1 to 256, with count 256"),
        ({"queues": 257}, "queues: 257 is out of bounds: use 1 to 256, with count 256"),
        ({"count": 65_536, "queues": 10_001}, "queues: 10001 is out of bounds: use 1 to 10000, with count 65536"),
        ({"queues": 1.0}, "queues: expected an integer"),
        ({"algorithm": "md5"}, "algorithm: expected one of xxh64, java, crc32, murmur2, modulo"),
        ({"algorithm": None}, "algorithm: expected one of xxh64, java, crc32, murmur2, modulo"),
    ],
)
def test_a_contract_out_of_bounds_is_refused(change: dict[str, Any], want: str) -> None:
    """The message names the field and the bounds."""
    with pytest.raises(ValueError, match=f"^{want}"):
        contract.from_mapping({**PUBLISHED, **change})


@pytest.mark.parametrize("field", PUBLISHED)
def test_no_field_may_be_missing(field: str) -> None:
    """A contract has no defaults: both sides must mean the same."""
    with pytest.raises(ValueError, match=f"^{field}: expected"):
        contract.from_mapping({name: value for name, value in PUBLISHED.items() if name != field})
