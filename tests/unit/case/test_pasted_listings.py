"""Listings of kubectl that somebody pasted into a mail or a ticket without any log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted, verdict_of

MAIL = "From: a@example.org\nTo: b@example.org\nSubject: stuck\nMIME-Version: 1.0\n\nHi, since ten nothing moves:\n\n{}\nBye\n"
NODES = (
    "$ kubectl get nodes\n"
    "NAME   STATUS     ROLES    AGE   VERSION\n"
    "g-1    Ready      <none>   9d    v1.30.1\n"
    "g-2    {:8}   <none>   9d    v1.30.1\n\n"
)
PODS = (
    "[ops@jump ~]$ kubectl get pods -o wide\n"
    "NAME           READY   STATUS      RESTARTS   AGE   IP           NODE   NOMINATED NODE   READINESS GATES\n"
    "fit-worker-0   1/1     Running     0          9h    10.0.1.4     g-1    <none>           <none>\n"
    "fit-worker-1   0/1     {:9}   0          9h    10.0.2.4     g-2    <none>           <none>\n"
)


@pytest.mark.parametrize("form", [MAIL, "Hi, since ten nothing moves:\n\n{}\nThanks\n"], ids=["mail", "ticket"])
@pytest.mark.parametrize(
    ("node", "state", "expected"),
    [("NotReady", "Running", "node g-2"), ("Ready", "OOMKilled", "pod fit-worker-1"), ("Ready", "Running", None)],
)
def test_listings_below_their_commands(tmp_path: Path, form: str, node: str, state: str, expected: str | None) -> None:
    (tmp_path / "stuck.eml").write_text(form.format(NODES.format(node) + PODS.format(state)))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert [expected in lead for lead in verdict.leads] == [True] if expected else not verdict.leads


def test_a_listing_in_a_log_is_read_once(tmp_path: Path) -> None:
    steps = "".join(f"step {number}/90 loss 2.{number}\n" for number in range(10, 40))
    leads = pasted(tmp_path, steps + PODS.format("OOMKilled")).leads
    assert [lead for lead in leads if "pod fit-worker-1" in lead] == list(leads[:1])


HEADING = "NAME   READY   STATUS   RESTARTS   AGE{0}\n"
ROW = "{0}   0/1   {1}   0   9h{2}\n"


@pytest.mark.parametrize("wide", [("", ""), ("   IP   NODE", "   10.0.0.4   g-1")], ids=["plain", "wide"])
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ({"old-worker-0": "OOMKilled", "fit-worker-0": "Running", "fit-worker-1": "Running"}, False),
        ({"fit-worker-2": "OOMKilled", "fit-worker-0": "Running", "fit-worker-1": "Running"}, True),
        ({"fit-decode-0": "OOMKilled", "fit-prefill-0": "Running", "fit-prefill-1": "Running"}, True),
        ({"old-worker-0": "OOMKilled", "fit-worker-0": "Error"}, True),
        ({"old-worker-0": "OOMKilled"}, True),
    ],
    ids=["of another job", "of the job", "of another role", "none runs", "alone"],
)
def test_a_pod_of_another_job_that_was_killed_is_no_end_of_this_one(
    tmp_path: Path, wide: tuple[str, str], pods: dict[str, str], expected: bool
) -> None:
    rows = "".join(ROW.format(pod, state, wide[1]) for pod, state in pods.items())
    (tmp_path / "pods.txt").write_text(HEADING.format(wide[0]) + rows)
    (tmp_path / "job.log").write_text("".join(f"step {number}/90 loss 2.{number}\n" for number in range(10, 40)))
    assert any("which ended" in lead for lead in verdict_of(tmp_path).leads) is expected
