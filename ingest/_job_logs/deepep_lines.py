"""Lines by which kernels of DeepEP, which exchanges tokens of experts, give up waiting.

A receiver says where it sits, by the number of its host in the exchange (`RDMA`) and of its GPU there (`nvl`), and from whom
nothing came; without a host the sender is on the receiver's own. `rank` counts within the group of experts.
Upstream: csrc/kernels/internode.cu, intranode.cu and utils.cuh of deepseek-ai/DeepEP, 1.0 to 1.2.
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

PATTERNS = (
    pattern(
        "transfer_timeout",
        r"DeepEP (?:dispatch|combine) NVL receiver timeout, channel: \d{1,5}, RDMA: (?P<host>\d{1,5}), nvl: (?P<own>\d{1,3}), "
        r"src (?:RDMA: (?P<from>\d{1,5}), src )?(?:NVL|nvl): (?P<gpu>\d{1,3})",
        "DeepEP: host={host} gpu={own} from={from}:{gpu}",
    ),
    pattern(
        "transfer_timeout",
        r"DeepEP (?:timeout |\w{4,12} (?:\w{2,12} )?(?:receiver|forwarder|sender|coordinator) timeout)",
        "DeepEP",
    ),
)
WORDS = ("DeepEP ",)
