"""Tables and columns of a section, and the kinds of artefacts that one may stand for (docs/formats/rank-summary.md)."""

from __future__ import annotations

from forensics.ingest._shared.packed import Types

_SQL = {"n": "BIGINT", "t": "VARCHAR", "b": "BOOLEAN", "l": "INTEGER[]"}
_LISTED = {
    "operations": "locator:n snapshot:n pg_id:n pg_name:t communicator:t backend:t sequence:n op_id:n pair_number:n "
    "record_id:n group_call:n kind:t is_p2p:b peer:n root:n count:n dtype:t bytes:n input_sizes:t output_sizes:t "
    "splits:t algorithm:t protocol:t stream:n call_path:n thread:t graph_captured:b enqueued_ns:n entered_ns:n returned_ns:n "
    "inside:b device_start_ns:n proxy_end_ns:n device_end_ns:n duration_ns:n retired:b timeout_ns:n state:t",
    "group_views": "pg_id:n pg_name:t description:t members:l last_enqueued:n last_started:n last_completed:n locator:t",
    "steps": "rank:n step:n begin_ns:n end_ns:n wall_ns:n batch:n accumulation:n",
    "stage_spans": "rank:n step:n stage:t substage:t order_index:n schema_hash:t substep:n group_role:t side_channel:b "
    "begin_ns:n duration_ns:n device_ns:n device_ready:b",
    "stacks": "locator:t rank:n host:t pid:n is_child:b sample:n time_ns:n thread:n thread_name:t is_main:b active:b "
    "owns_gil:b call_path:n clock_s:n timer_s:n peer:n",
    "call_paths": "call_path:n depth:n frame:n",
    "frames": "frame:n name:t filename:t line:n",
    "communicator_states": "locator:n communicator:t parent:t comm_id:t name:t state:t group_rank:n size:n color:n device:n "
    "nodes:n graph_captured:b init_entered_ns:n init_returned_ns:n closed_ns:n operations:n finished:n last_entered_ns:n "
    "last_returned_ns:n inside_kind:t async_error:n",
    "communicator_events": "locator:n communicator:t kind:t thread:t entered_ns:n returned_ns:n result:n error:n",
    "flows": "locator:n communicator:t sequence:n channel:n queue_pair:t peer:n direction:t local_nic:t remote_nic:t bytes:n "
    "start_ns:n end_ns:n",
    "chunk_states": "locator:n time_ns:n communicator:t sequence:n channel:n peer:n direction:t pair_number:n total:n posted:n "
    "gpu_ready:n transmitted:n done:n received:n flushed:n consumed:n wait_gpu_ns:n wait_credit_ns:n wait_nic_ns:n "
    "wait_wire_ns:n wait_flush_ns:n wait_consume_ns:n stuck_ns:n",
    "queue_pairs": "locator:n host:t queue_pair:t generation:n nic:t port:n remote_queue_pair:t remote_nic:t peer:n "
    "communicator:t channel:n direction:t number:n gid:t timeout:n retry_count:n created_ns:n connected_ns:n ended:b",
    "wr_samples": "locator:n time_ns:n queue_pair:t posted:n completed:n posted_bytes:n completed_bytes:n in_flight:n "
    "oldest_ns:n window_rate:n busy_ns:n error_status:n vendor_error:n error_ns:n unacknowledged:n received_bytes:n "
    "poll_gap_ns:n",
    "ranks": "rank:n host:t local_rank:n gpu:t pid:n",
    "clocks": "host:t reference:t offset_ns:n bound_ns:n method:t realtime_ns:n monotonic_ns:n boottime_ns:n",
    "coverage": "scope:t host:t rank:n kind:t status:t reason:t begin_ns:n end_ns:n",
    "job_config": "host:t rank:n key:t value:t confidence:t",
}
TABLES: dict[str, Types] = {
    table: {name: _SQL[kind] for name, _, kind in (column.partition(":") for column in listed.split())}
    for table, listed in _LISTED.items()
}
"""Columns of each table with what they hold: whole numbers, texts, booleans or lists of whole numbers."""

_CALLS = frozenset({"operations", "group_views", "call_paths", "frames", "job_config", "coverage"})
_STAGES = frozenset({"steps", "stage_spans", "ranks", "clocks", "job_config", "coverage"})
_STACKS = frozenset({"stacks", "call_paths", "frames", "coverage"})
_LOG = frozenset(
    {"operations", "communicator_states", "communicator_events", "flows", "chunk_states", "queue_pairs", "wr_samples"}
    | {"clocks", "coverage", "job_config"}
)
KINDS = {"flight_recorder": _CALLS, "stage_vectors": _STAGES, "python_stacks": _STACKS, "shim_log": _LOG}
"""Tables of each kind of artefact that a section may stand for."""

NARROW = ("i1", "i2", "i4", "i8")
"""Widths in which whole numbers and codes are stored, little-endian."""
MOST_MEMBERS = 2048
"""Members of a group that are listed; of a larger one they are left to the size of the job."""
