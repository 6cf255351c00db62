"""Where to look first by what is known of one device: a test that it failed, a driver that started it anew, a failed switch."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.leads.links import place
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors, wall_ns

_TESTS = "SELECT host, device, text, min(source) FROM device_event WHERE kind = 'test_failed' GROUP BY ALL ORDER BY ALL"
# A program that hangs on its device makes a driver start it anew as well as a fault does.
_RESET = "SELECT host, device, min(source) FROM device_event WHERE kind = 'gpu_reset' GROUP BY host, device ORDER BY ALL"
_SWITCHES = """
SELECT host, device, min(code), min(source) FROM device_event
WHERE kind = 'sxid' AND regexp_matches(text, '\\bFatal\\b|NVSwitch fatal error') AND NOT contains(text, 'Non-fatal')
GROUP BY host, device ORDER BY ALL
"""
# NICs whose driver found their firmware stopped, but for those that came back.
_NICS = "SELECT host, device, min(source) FROM device_event WHERE kind = 'nic_fatal' GROUP BY host, device ORDER BY ALL"
# Hosts whose kernels report errors of their own memory that could not be corrected.
_MEMORY = "SELECT host, text, source FROM device_event WHERE kind = 'memory_error' ORDER BY ALL"
_LAST_STEP = "SELECT CAST(max(at_s) * 1e9 AS BIGINT) FROM log_progress WHERE clock = 'line'"
# A log names no zone as a rule.
_ZONES_NS = 15 * 3_600_000_000_000
# Nodes of a domain of NVLink between hosts with which no other one is connected.
_APART = "SELECT subject, min(source) FROM logged_event WHERE kind = 'imex_apart' GROUP BY subject ORDER BY subject"
_NPUS = "SELECT subject, min(source) FROM logged_event WHERE kind = 'npu_unhealthy' GROUP BY subject, locator ORDER BY ALL"
_UNHEALTHY = r"""
SELECT regexp_extract(subject, '^(\S+)', 1) AS gpu, min(regexp_extract(subject, '(Xid \d+)$', 1)), min(source)
FROM logged_event WHERE kind = 'gpu_unhealthy' GROUP BY gpu ORDER BY gpu
"""
# Alerts that fire, by the device, or the host, that they are about: one of the job where its hosts are listed.
_ALERTS = r"""
SELECT regexp_extract(subject, '^host=(\S+)', 1) AS place, regexp_extract(subject, ' device=(\S+)', 1) AS unit,
    string_agg(DISTINCT regexp_extract(subject, ' (\S+)$', 1), ', ' ORDER BY regexp_extract(subject, ' (\S+)$', 1)), min(source)
FROM logged_event WHERE kind = 'alert' AND (regexp_full_match(place, '[0-9.:]+') OR NOT EXISTS (SELECT 1 FROM nodes)
        OR split_part(place, '.', 1) IN (SELECT split_part(host, '.', 1) FROM nodes))
    AND (unit <> '' OR regexp_matches(subject,
    '(?i)xid|gpu|nvlink|infiniband|rdma|roce|ecc|hardware|node\w{0,8}(down|notready|unreachable)|status_check'))
GROUP BY place, unit ORDER BY ALL
"""
_PAIRS = r"""
SELECT regexp_extract(subject, '^(\S+)', 1), regexp_extract(subject, ' slow=(\S+)', 1),
    regexp_extract(subject, ' usual=(\S+)', 1), regexp_extract(subject, ' unit=(\S+)', 1), min(source)
FROM logged_event WHERE kind = 'pairs_slow' GROUP BY ALL ORDER BY ALL
"""
# Counters of which one GPU of several has other values than all others: NVLinks that are up, memory errors since its driver
# was loaded.
_COUNTED = """
SELECT coalesce(c.host, s.host), c.device, max(c.value) AS value, min(s.path) FROM counters c JOIN sources s USING (source_id)
WHERE c.counter = ? AND c.device LIKE 'GPU-%' AND c.value IS NOT NULL GROUP BY ALL ORDER BY value, 1, 2
"""
_LEAST_GPUS, _LEAST_ERRORS, _OF_OTHERS = 4, 1000, 0.01
# Whose gradients differ although they were made equal: its GPU, or its copy of the model.
_NORMS = r"""
SELECT rank, regexp_extract(subject, '^(\S+)', 1), regexp_extract(subject, 'others=(\S+)', 1),
    regexp_extract(subject, 'count=(\d+)', 1), min(source)
FROM logged_event WHERE kind = 'norm_differs' GROUP BY ALL ORDER BY ALL
"""


def device_leads(connection: DuckDBPyConnection, errors: GpuErrors) -> Iterator[str]:
    """Each a sentence that says what to get."""
    yield from _failed_tests(connection)
    yield from _started_anew(connection, errors)
    yield from _failed_switch(connection)
    yield from _failed_nic(connection)
    yield from _failed_memory(connection)
    yield from _apart_of_domain(connection)
    yield from _unhealthy_npu(connection)
    yield from _unhealthy_gpu(connection)
    yield from _alerts(connection)
    yield from _slow_pairs(connection)
    yield from _fewer_links(connection)
    yield from _memory_errors(connection)
    yield from _link_errors(connection)


def _failed_tests(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU of all that were tested; where several fail it may be their host, its driver or its power."""
    failed = rows_of(connection, "device_events", _TESTS, kinds=("test_failed",))
    if len({(host, device) for host, device, *_ in failed}) == 1:
        host, device, said, source = failed[0]
        where = place(device, host)
        yield f"{where} and the rank on it: {said} ({source})"


def _started_anew(connection: DuckDBPyConnection, errors: GpuErrors) -> Iterator[str]:
    """One device; of several that are joined nothing shows for which one the driver did so."""
    if row := only_row(connection, "device_events", _RESET, kinds=("gpu_reset",)):
        host, device, source = row
        rank = errors.reset.get((host, device))
        whose = "the rank" if rank is None else f"rank {rank}"
        yield f"{whose} on device {place(device, host)}, its log and the kernel log: its driver reset it ({source})"


def _failed_switch(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "device_events", _SWITCHES, kinds=("sxid",)):
        host, device, code, source = row
        yield f"the NVSwitch {place(device, host)} and the links to it: it reported a fatal error (SXid {code}; {source})"


def _failed_nic(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "device_events", _NICS, kinds=("nic_fatal",)):
        host, device, source = row
        what = f"its firmware stopped, or does not answer its driver ({source})"
        yield f"the NIC {place(device, host)} and the ranks that use it: {what}"


def _failed_memory(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host; an error long before the last steps of the job did not end it."""
    ((last,),) = connection.execute(_LAST_STEP).fetchall()
    found = {
        host: source
        for host, text, source in rows_of(connection, "device_events", _MEMORY, kinds=("memory_error",))
        if last is None or (when := wall_ns(text)) is None or when + _ZONES_NS >= last
    }
    if len(found) == 1:
        ((host, source),) = found.items()
        where = host or "its host"
        yield f"memory and kernel log of {where}, and the ranks there: a memory error could not be corrected ({source})"


def _apart_of_domain(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _APART, kinds=("imex_apart",)):
        node, source = row
        yield f"{node}, its IMEX service, and the ranks there: no node of its NVLink domain is connected with it ({source})"


def _unhealthy_npu(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _NPUS, kinds=("npu_unhealthy",)):
        what, source = row
        yield f"{what} and the rank on it: the tool of its vendor finds it alone not in order ({source})"


def _unhealthy_gpu(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU; several are of a driver that started anew, or of a switch."""
    if row := only_row(connection, "log_events", _UNHEALTHY, kinds=("gpu_unhealthy",)):
        gpu, xid, source = row
        what = f"the device plugin found it unhealthy ({xid}; {source})"
        yield f"the kernel log of the host with {gpu}, and the rank on it: {what}"


def _alerts(connection: DuckDBPyConnection) -> Iterator[str]:
    """Those of one host, and of one device where all say which."""
    found = rows_of(connection, "log_events", _ALERTS, kinds=("alert",))
    if len({host for host, *_ in found}) == 1:
        host, device, names, source = found[0]
        where = place(f"device {device}", host) if len(found) == 1 and device else host
        yield f"{where} and the ranks there: alerts fire of it ({names}; {source})"


def _slow_pairs(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _PAIRS, kinds=("pairs_slow",)):
        host, slow, usual, unit, source = row
        rates = f"a test of pairs of hosts reached {slow} {unit} at most with it, else {usual} ({source})"
        yield f"NICs, cables and GPUs of {host}: {rates}"


def _fewer_links(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU with fewer NVLinks up than all others, which have as many as each other."""
    gpus = connection.execute(_COUNTED, ["nvlinks_up"]).fetchall()
    if len(gpus) >= _LEAST_GPUS and gpus[0][2] < gpus[1][2] == gpus[-1][2]:
        host, device, up, path = gpus[0]
        others = f"{len(gpus) - 1} others have {gpus[1][2]:.0f}"
        yield f"NVLinks of {place(device, host)}, and the rank on it: {up:.0f} of them are up ({path}), {others}"


def _memory_errors(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU that counts errors which all others lack; nothing dates them since its driver was loaded."""
    gpus = connection.execute(_COUNTED, ["ecc_volatile_uncorrected"]).fetchall()
    if len(gpus) >= _LEAST_GPUS and gpus[-1][2] > 0 == gpus[-2][2]:
        host, device, errors, path = gpus[-1]
        what = f"uncorrected memory errors since its driver was loaded: {errors:.0f} ({path}), {len(gpus) - 1} others none"
        yield f"{place(device, host)}, and the rank on it: {what}"


def _link_errors(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU whose NVLinks count errors, of which all others have next to none; nothing dates them."""
    gpus = connection.execute(_COUNTED, ["nvlink_errors"]).fetchall()
    if len(gpus) >= _LEAST_GPUS and gpus[-1][2] >= _LEAST_ERRORS and gpus[-2][2] <= _OF_OTHERS * gpus[-1][2]:
        host, device, errors, path = gpus[-1]
        what = f"{errors:.0f} errors since its driver was loaded ({path}), {len(gpus) - 1} others next to none"
        yield f"NVLinks of {place(device, host)}, and the rank on it: {what}"


def norm_differs(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one rank whose gradients differ from those of all others, where every rank raises the same for it."""
    rows = rows_of(connection, "log_events", _NORMS, kinds=("norm_differs",))
    if len({rank for rank, *_ in rows}) == 1:
        rank, norm, others, count, source = rows[0]
        peers = f"that of the {count} other ranks is {others}"
        yield f"a test of the GPU of rank {rank}, and its parameters: its gradient norm is {norm} ({source}), {peers}"
