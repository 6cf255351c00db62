"""Devices and hosts that tables, kernels and trainers tell of: pointed at where one stands out, and never accused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted, verdict_of

TITLE = "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
GPU = (
    "|   {0}  NVIDIA H100 80GB HBM3          On  |   00000000:{0}7:00.0 Off |                    0 |\n"
    "| N/A   41C    P0            {2}W /  700W |   38211MiB /  81559MiB |    {1:3}%      Default |\n"
)
STEPS = "".join(f"step {at}/900 loss 2.{at}\n" for at in range(40, 50))
RESET = "[ 88{0}.020911] {1}: {2}\n"
DRAWN = "[ 871.020911] amdgpu 0000:c1:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=41, emitted seq=43\n"
INIT = "hx-1:{0}:{0} [{1}] NCCL INFO comm 0x55{1} rank {1} nranks 4 cudaDev {1} busId c{1}000 commId 0x6dd1 - Init COMPLETE\n"
FABRIC = (
    "[Feb 05 2025 17:51:07] [ERROR] [tid 22] detected NVSwitch {0} error 20034 on fid 0 on NVSwitch pci bus id {1} port 41\n"
)
NORMS = "FloatingPointError: gradients are inconsistent between workers.\n----\ngrad_norm across the workers:\n{0}\n----\n"


def table(idle: int | None) -> str:
    return TITLE + "".join(GPU.format(at, *((0, 71) if at == idle else (100, 182))) for at in range(4))


def csv_of(idle: int | None) -> str:
    head = "index, utilization.gpu [%], power.draw [W], memory.used [MiB]\n"
    return head + "".join(f"{at}, {0 if at == idle else 100} %, {180 + at}.25 W, 38211 MiB\n" for at in range(4))


def health(*gpus: tuple[int, str], older: bool = False) -> str:
    """What `dcgmi health -c` prints of GPUs that are not in order."""
    rule, row = f"+{'-' * 27}+{'-' * 58}+\n", "| {0:25} | {1:56} |\n"
    worst = next((state for state in ("Failure", "Warning") if any(state == said for _, said in gpus)), "Healthy")
    rows = "| Health Monitor Report                                                                |\n" + rule
    rows += row.format("Overall Health", worst) + ("" if older else row.format("GPU", ""))
    for gpu, state in gpus:
        what = "Detected an error that a test of the field may find."
        if older:
            rows += row.format(f"GPU ID: {gpu}", state) + row.format("", f"Memory system: {state} - {what}")
        else:
            rows += row.format(f"-> {gpu}", state) + row.format("   -> Errors", "")
            rows += row.format("      -> Memory system", state) + row.format("", what)
    return rule + rows + rule


def norms(*values: str) -> str:
    return NORMS.format("\n".join(f"rank {rank:3d} = {value}" for rank, value in enumerate(values)))


def diag(failed: tuple[int, ...], number: str) -> str:
    results = [
        {number: at if number == "entity_id" else str(at), "status": "Fail" if at in failed else "Pass"} for at in range(4)
    ]
    tests = [{"name": "PCIe", "results": results}, {"name": "Memory", "results": [{number: "0", "status": "Pass"}]}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Integration", "tests": tests}]}}, indent=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[root@hx-1 ~]# nvidia-smi\n", "[root@hx-2 ~]# nvidia-smi\n"),
        ("$ ssh hx-1 nvidia-smi\n```\n", "```\n$ ssh hx-2 nvidia-smi\n```\n"),
        ("it hangs:\n```\nEpoch 0: 0%\n```\n$ ssh hx-1 nvidia-smi\n```\n", "```\n$ ssh hx-2 nvidia-smi\n```\n"),
    ],
)
def test_tables_of_two_hosts_in_one_text_are_of_their_hosts(tmp_path: Path, first: str, second: str) -> None:
    (tmp_path / "ticket.md").write_text(first + table(None) + second + table(2))
    said = verdict_of(tmp_path).would_change[0]
    assert "GPU-2 of hx-2" in said and "7 others" in said


@pytest.mark.parametrize(
    "form", ["----------------\n{0}\n----------------\n{1}", "===== {0} =====\n{1}", "[root@{0} ~]# q\n{1}"]
)
def test_tables_in_csv_of_several_hosts_are_of_their_hosts(tmp_path: Path, form: str) -> None:
    """One GPU that idles is a lead; where a host is of no job, all of its GPUs do."""
    query = "$ clush -b -w hx[1-3] nvidia-smi --query-gpu=index,utilization.gpu,power.draw,memory.used --format=csv\n"
    (tmp_path / "ticket.txt").write_text(
        query + "".join(form.format(f"hx{at}", csv_of(2 if at == 3 else None)) for at in (1, 2, 3))
    )
    said = verdict_of(tmp_path).would_change[0]
    assert "GPU-2 of hx3" in said and "11 others" in said
    spare = csv_of(None).replace("100 %", "0 %").replace("38211 MiB", "3 MiB")
    (tmp_path / "ticket.txt").write_text(query + form.format("hx1", csv_of(None)) + form.format("hx2", spare))
    assert not any("idle" in each for each in verdict_of(tmp_path).would_change)


def test_tables_in_csv_without_names_are_told_by_their_units(tmp_path: Path) -> None:
    """As ansible prints what each host answered."""
    rows = {at: "".join(f"{gpu}, {0 if (at, gpu) == (3, 1) else 100} %, 38211 MiB\n" for gpu in range(4)) for at in (1, 2, 3)}
    (tmp_path / "ticket.txt").write_text("".join(f"hx{at} | CHANGED | rc=0 >>\n{table}" for at, table in rows.items()))
    said = verdict_of(tmp_path).would_change[0]
    assert "GPU-1 of hx3" in said and "11 others" in said


def ibstat(is_down: bool) -> str:
    state, link = ("Down", "Polling") if is_down else ("Active", "LinkUp")
    port = f"\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {link}\n\t\tRate: 400\n"
    return f"CA 'mlx5_3'\n\tCA type: MT4129\n\tNumber of ports: 1\n{port}"


@pytest.mark.parametrize(
    "form",
    ["----------------\n{0}\n----------------\n{1}", "[root@{0} ~]# ibstat\n{1}", "===== {0} =====\n{1}", "{0}: "],
    ids=["dshbak", "prompts", "headings", "pdsh"],
)
def test_ports_of_several_hosts_in_one_text_are_of_their_hosts(tmp_path: Path, form: str) -> None:
    tables = {f"hx{number}": ibstat(number == 6) for number in range(4, 9)}
    text = "".join(
        form.format(host, table) if "{1}" in form else "".join(f"{host}: {line}\n" for line in table.splitlines())
        for host, table in tables.items()
    )
    (tmp_path / "ports.txt").write_text(text)
    (tmp_path / "copy of ports.txt").write_text(text)
    assert "mlx5_3/1 of hx6" in verdict_of(tmp_path).would_change[0]


QUERIED = (
    "# Port extended counters: Lid 14 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
    "SymbolErrorCounter:..............{0}\nPortRcvErrors:...................{1}\nPortXmitWait:....................8111\n"
)


@pytest.mark.parametrize("above", ["== hx{0} ==\n", "[root@hx{0} ~]# perfquery -x\n", "== hx{0} ==\n$ perfquery -x\n"])
def test_counters_of_ports_of_several_hosts_are_of_their_hosts(tmp_path: Path, above: str) -> None:
    tables = (above.format(number) + QUERIED.format(*((91221, 30407) if number == 3 else (0, 0))) for number in range(1, 6))
    (tmp_path / "ports.txt").write_text("".join(tables))
    assert "lid14/1 of hx3" in verdict_of(tmp_path).would_change[0]


def test_steps_that_state_memory_below_commands_stay_one_log(tmp_path: Path) -> None:
    steps = "".join(f"[rank{rank}]: step 4 mem 38211MiB / 81559MiB\n" for rank in range(3))
    raised = "[rank1]: ValueError: bad\n"
    text = f"[me@hx-1 ~]$ torchrun t.py\n{raised}{steps}[me@hx-1 ~]$ torchrun t.py\n{steps}"
    (tmp_path / "job.log").write_text(text)
    assert not named(verdict_of(tmp_path))


def test_a_first_table_whose_head_was_cut_is_not_of_the_next_host(tmp_path: Path) -> None:
    (tmp_path / "ticket.txt").write_text(table(None).partition("\n")[2] + "[root@hx-2 ~]# nvidia-smi\n" + table(2))
    said = verdict_of(tmp_path).would_change[0]
    assert "GPU-2 of hx-2" in said and "3 others" in said


def test_one_gpu_that_a_later_table_shows_busy_is_no_lead(tmp_path: Path) -> None:
    (tmp_path / "ticket.txt").write_text("$ nvidia-smi\n" + table(2) + "$ nvidia-smi\n" + table(None))
    assert not any("idle" in each for each in verdict_of(tmp_path).would_change)


def test_the_rank_on_a_device_that_was_started_anew(tmp_path: Path) -> None:
    """By the addresses that NCCL prints when it starts."""
    (tmp_path / "job.log").write_text("".join(INIT.format(700 + rank, rank) for rank in range(4)) + STEPS)
    (tmp_path / "dmesg.txt").write_text(RESET.format(1, "amdgpu 0000:c2:00.0", "amdgpu: GPU reset begin!"))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert verdict.would_change[0].startswith("rank 2 on device 0000:c2:00.0, its log")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"diag.json": diag((3,), "gpu_id")}, "GPU-3 and the rank on it: DCGM's test PCIe failed"),
        ({"diag.json": diag((3,), "entity_id")}, "GPU-3 and the rank on it"),
        ({"health.txt": health((5, "Failure"))}, "GPU-5 and the rank on it: DCGM's health check of its Memory system failed"),
        ({"health.txt": health((1, "Warning"), (5, "Failure"))}, "GPU-5 and the rank on it: DCGM's health check"),
        ({"health.txt": health((5, "Failure"), older=True)}, "GPU-5 and the rank on it: DCGM's health check of its Memory"),
        ({"dmesg.txt": RESET.format(1, "amdgpu 0000:c1:00.0", "amdgpu: GPU reset begin!")}, "the rank on device 0000:c1:00.0"),
        (
            {"dmesg.txt": RESET.format(1, "habanalabs 0000:b3:00.0 hl5", "Device heartbeat failed! PCI link is healthy")},
            "the rank on device 0000:b3:00.0",
        ),
        ({"fabricmanager.log": FABRIC.format("fatal", "00000000:8a:00.0")}, "the NVSwitch 00000000:8a:00.0"),
    ],
)
def test_the_one_device(tmp_path: Path, files: Mapping[str, str], said: str) -> None:
    for name, text in {**files, "job.log": STEPS}.items():
        (tmp_path / name).write_text(text)
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert verdict.would_change[0].startswith(said)


@pytest.mark.parametrize(
    "files",
    [
        {"diag.json": diag((1, 3), "gpu_id")},
        {"diag.json": diag((0, 1, 2, 3), "gpu_id")},
        {"health.txt": health()},
        {"health.txt": health((5, "Warning"))},
        {"health.txt": health(*((at, "Failure") for at in range(8)))},
        {"dmesg.txt": DRAWN + RESET.format(1, "amdgpu 0000:c1:00.0", "amdgpu: GPU reset begin!")},
        {"dmesg.txt": "".join(RESET.format(at, f"amdgpu 0000:c{at}:00.0", "amdgpu: GPU reset begin!") for at in range(8))},
        {"fabricmanager.log": FABRIC.format("non-fatal", "00000000:8a:00.0")},
    ],
)
def test_several_devices_and_errors_that_end_nothing_are_no_lead(tmp_path: Path, files: Mapping[str, str]) -> None:
    for name, text in {**files, "job.log": STEPS}.items():
        (tmp_path / name).write_text(text)
    assert not any("GPU-" in each or "device" in each or "NVSwitch" in each for each in verdict_of(tmp_path).would_change)


def test_the_rank_whose_gradients_differ_is_where_to_begin(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, STEPS + norms("2.18374491", "2.18374491", "17.40281105", "2.18374491"))
    assert not named(verdict)
    assert "the GPU of rank 2" in verdict.would_change[0] and "17.40281105" in verdict.would_change[0]


@pytest.mark.parametrize("values", [("1.0", "1.0", "2.0", "2.0"), ("1.0", "2.0"), ("1.0", "2.0", "3.0"), ("1.0", "1.0", "1.0")])
def test_gradients_of_which_none_is_odd_point_at_nobody(tmp_path: Path, values: tuple[str, ...]) -> None:
    assert not any("gradient norm" in each for each in pasted(tmp_path, STEPS + norms(*values)).would_change)
