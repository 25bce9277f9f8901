"""A database in memory for the records, which still write Parquet with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def database(**config: Any) -> duckdb.DuckDBPyConnection:
    """An empty DuckDB in memory that loads no extensions and never fetches one from a network."""
    import duckdb

    offline = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    return duckdb.connect(":memory:", config={**offline, **config})
