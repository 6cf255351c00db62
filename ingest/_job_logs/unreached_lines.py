"""Lines by which NCCL tells of an address that it could not connect to.

Upstream: src/misc/socket.cc of NVIDIA/nccl, 2.12 to 2.28: `socketStartConnect: Connect to ADDRESS<PORT> failed : REASON`,
`socketPollConnect: Connect to ADDRESS<PORT> returned 113(REASON)`.
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

PATTERNS = (
    pattern(
        "peer_unreached",
        r"(?:Connect to|connect to) \[?(?P<peer>[\w.:-]{1,253}?)\]?<\d{1,5}> "
        r"(?:failed ?: |returned \d{1,3} ?\()(?:No route to host|Network is unreachable|Connection timed out"
        r"|Connection refused|Host is down)",
        "{peer}",
        ("Connect to ", "connect to "),
    ),
)
WORDS = ("Connect to ", "connect to ")
