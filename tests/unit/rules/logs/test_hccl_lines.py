"""What HCCL writes on Ascend devices: the rank that all others wait for, and lines that tell nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted

DEVICE = (
    "[ERROR] 2026-03-27-14:02:11 (PID:3012{0}, Device:{0}, RankID:{0}) ERR01100 OPS call acl api failed\n"
    "EZ9999: [PID: 3012{0}] 2026-03-27-14:02:11.119.004 The error from device(chipId:{0}, dieId:0), serial number is 3, an "
    "exception occurred during AICORE execution, stream id:24\n"
)


def notify(waits: Mapping[int, object], group: str = "10.0.0.4%enp_60000_0_1743", rank_is: int = 0) -> str:
    """Each rank waits for a notify of another one."""
    return "".join(
        f"[ERROR] 2026-03-27-14:32:1{rank % 10} (PID:3012{rank}, Device:{rank}, RankID:{rank + rank_is}) ERR02200 DIST call "
        f"hccl api failed.\nEI0002: [PID: 3012{rank}] 2026-03-27-14:32:24.514.220 The wait execution of the Notify register "
        f"times out. Reason: The Notify register has not received the Notify record from remote rank [{remote}].base "
        f"information: [streamID:[48], taskType[Notify Wait], tag[AllReduce_{group}]]. task information: [stage:[0]]\n"
        for rank, remote in waits.items()
    )


def sockets(waits: Mapping[int, int]) -> str:
    """The table of HCCL's log on connections that did not come up."""
    front = "[ERROR] HCCL(17528,python3):2026-03-18-10:33:52.113.706 [hccl_socket_manager.cc:583] [18744]   "
    return "".join(
        f"{front}|  192.0.2.{remote}({remote})  |  16666  |   192.0.3.{rank}({rank})   |  323440{rank}  |  client  "
        "| time out |  DISABLE  | LinkInfo\n"
        for rank, remote in waits.items()
    )


@pytest.mark.parametrize(
    "text",
    [
        notify(dict.fromkeys((0, 1, 2, 3, 4, 6, 7), 5)),
        notify({0: 5, 1: 5, 2: 5, 3: "unknown", 4: 5, 6: 5, 7: 6}),
        sockets(dict.fromkeys((0, 1, 2, 3, 4, 6), 5)),
    ],
    ids=["notify", "some wait for those that wait", "connections"],
)
def test_the_rank_that_most_wait_for_and_that_waits_for_nobody(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == ({5}, Outcome.HANG)


@pytest.mark.parametrize(
    "words",
    [
        "an exception occurred during AICORE execution",
        "an exception occurred during AICPU execution",
        "there is an exception of fftsplus aicore error",
        "there is an aivec error exception",
    ],
)
@pytest.mark.parametrize("code", ["EZ9999: [PID: ", "EZ9999[PID: "])
def test_the_rank_whose_device_failed_before_the_others_gave_up(tmp_path: Path, words: str, code: str) -> None:
    device = DEVICE.replace("an exception occurred during AICORE execution", words).replace("EZ9999: [PID: ", code)
    verdict = pasted(tmp_path, device.format(5) + notify(dict.fromkeys((0, 1, 2, 3, 4, 6, 7), "unknown")))
    assert (named(verdict), verdict.outcome) == ({5}, Outcome.FAILSTOP)


def test_the_call_that_torch_npu_names_is_no_word_of_a_peer(tmp_path: Path) -> None:
    """It synchronises with a time limit whatever its error is: 507015 is an exception of the device, 507048 of a collective."""
    raised = "[rank{0}]: RuntimeError: NPU function error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout, error code is {1}\n"
    others = "".join(raised.format(rank, 507048) for rank in (0, 1, 3))
    assert named(pasted(tmp_path, raised.format(2, 507015) + others)) == {2}
    assert not named(pasted(tmp_path, raised.format(2, 507048) + others))


RAISED = "[rank{0}]: RuntimeError: OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(notify(dict.fromkeys((0, 1, 2, 3), "unknown")), id="who is waited for is not known"),
        pytest.param(notify({0: 3, 1: 0, 2: 1}), id="a ring, of which one log is not here"),
        pytest.param(notify({0: 1, 1: 0}), id="two that wait for each other"),
        pytest.param(notify(dict.fromkeys((0, 1, 2), 3), rank_is=8), id="numbers within a group"),
        pytest.param(notify({0: 3, 1: 3}) + notify({2: 3}, group="10.0.0.4%enp_60000_1_1744"), id="two groups"),
        pytest.param(notify({0: 7}), id="one rank"),
        pytest.param(sockets({0: 1, 1: 0, 2: 3, 3: 2}), id="both ends of connections"),
        pytest.param("".join(DEVICE.format(rank) for rank in range(4)), id="all devices failed"),
        pytest.param(RAISED.format(1) + RAISED.format(3) + notify({2: "unknown"}), id="errors of a collective"),
        pytest.param(
            notify(dict.fromkeys((0, 1, 2, 3), "unknown")) + DEVICE.format(2), id="a device that failed when all had given up"
        ),
    ],
)
def test_lines_that_tell_nobody(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()


def test_waiting_alone_is_a_hang(tmp_path: Path) -> None:
    text = "[ERROR] 2026-03-27-14:02:11 (PID:7, Device:1, RankID:1) ERR01100 OPS call acl api failed.\n"
    text += "EI0006: [PID: 7] 2026-03-27-14:02:11.119.004 Getting socket times out. Reason: Remote Rank did not send the data\n"
    assert pasted(tmp_path, text).outcome is Outcome.HANG


def test_a_bare_traceback_below_a_line_of_torch_npu_is_of_its_rank(tmp_path: Path) -> None:
    own = (
        "[ERROR] 2026-03-27-14:02:11 (PID:7, Device:0, RankID:24) ERR00100 PTA call acl api failed.\n"
        "Traceback (most recent call last):\n"
        '  File "/ws/pretrain.py", line 212, in <module>\n'
        "    pretrain()\nRuntimeError: NPU out of memory. Tried to allocate 2 GiB\n"
    )
    others = notify({1: 24, 2: 1})
    assert named(pasted(tmp_path, own + others)) == {24}
    assert not named(pasted(tmp_path, own.replace("RankID:24", "RankID:-1") + others))


GAVE_UP = "[rank{0}]: RuntimeError: ACL stream synchronize failed, error code:507048\n[rank{0}]: " + notify({0: "unknown"})
SILENT = (
    "[rank{0}]: Cluster Exception Location[IP/ID]:[198.51.100.{1}/5], Arrival Time:[Mon May 4 08:12:40 2026], Discoverer:"
    "[198.51.100.9/4], ExceptionType:[{2} Occurred], Possible Reason:1. Process has exited, 2. Network Disconnected\n"
)
TRACED = (
    "[INFO] HCCL(71,python):2026-05-04-08:12:5{0}.191.363 [heartbeat.cc:951] [90][HCCL_TRACE]rank [198.51.100.9/{0}]: rank "
    "[198.51.100.{1}/5] status[LOST] by rank [198.51.100.9/4]\n"
)
FAILED = (
    "[ERROR] HCCL(71,python):2026-05-04-08:42:51.049.385 [task_exception_handler.cc:610][71]Task run failed, base information "
    "is streamID:[12], taskID[4], taskType[Notify Wait], tag[AllReduce_198.51.100.8%eth0_60004_0_17].\n"
)


def devices_to_begin_with(text: str, folder: Path) -> list[str]:
    """What to begin with, where it is a device that fell silent."""
    verdict = pasted(folder, text)
    assert not named(verdict)
    return [lead for lead in verdict.leads if "device 5 of" in lead]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("".join(GAVE_UP.format(n) + SILENT.format(n, 7, "Heartbeat Lost") for n in (0, 3)), id="in the output"),
        pytest.param(GAVE_UP.format(0) + SILENT.format(0, 7, "Stuck"), id="stuck"),
        pytest.param(
            GAVE_UP.format(0) + "serverId[198.51.100.7], deviceId[5], Heartbeat Lost Occurred, Possible Reason: 1\n",
            id="CANN 8.1",
        ),
        pytest.param(TRACED.format(0, 7) + TRACED.format(1, 7) + FAILED, id="traced before a wait failed"),
    ],
)
def test_the_device_that_fell_silent_is_where_to_begin(tmp_path: Path, text: str) -> None:
    assert devices_to_begin_with(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TRACED.format(0, 7), id="no wait failed: jobs end as well"),
        pytest.param(FAILED + TRACED.format(0, 7), id="traced after the first wait failed"),
        pytest.param(TRACED.format(0, 7) + TRACED.format(0, 8) + FAILED, id="two devices"),
        pytest.param(
            GAVE_UP.format(0) + SILENT.format(0, 7, "Error cqe"), id="a connection, of which either end may be at fault"
        ),
    ],
)
def test_no_device_that_others_may_have_lost_in_good_order(tmp_path: Path, text: str) -> None:
    assert not devices_to_begin_with(text, tmp_path)
