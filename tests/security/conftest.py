"""The surroundings of the edge's tests."""

from tests.edge.conftest import _alone, _tokeniser

__all__ = ["_alone", "_tokeniser"]
