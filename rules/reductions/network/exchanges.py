"""Which communicators exchange messages among equals: an all_to_all, also as one group of sends and receives."""

from __future__ import annotations

EXCHANGE = "all_to_all"
# In one call: a pipeline has two neighbours at most.
_LEAST_REACHED = 3

EXCHANGES = f"""exchanges AS (
    SELECT communicator FROM (
        SELECT communicator, count(DISTINCT peer) FILTER (kind = 'send') AS reached, count(*) AS messages FROM operations
        WHERE list_contains($sources, source_id) AND is_p2p AND group_call IS NOT NULL AND communicator IS NOT NULL
        GROUP BY source_id, communicator, group_call
    ) GROUP BY communicator HAVING 2 * sum(messages) FILTER (reached >= {_LEAST_REACHED}) > sum(messages)
)"""
"""Communicators whose groups of messages mostly lead to several ranks: a part of a query with `sources`."""
