from __future__ import annotations

import random

import pytest

from tests.unit.ingest.reading import SAMPLES, Result, read, sample

NEW, OLD = "nvidia_smi/handmade_driver_570.xml", "nvidia_smi/handmade_driver_470.xml"
HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'


def readings(result: Result, device: str) -> dict[str, int]:
    return {row["counter"]: row["value"] for row in result.rows("counters") if row["device"] == device}


def events(result: Result, device: str, kind: str) -> list[tuple[int | None, str]]:
    return [
        (row["code"], row["text"]) for row in result.rows("device_events") if (row["device"], row["kind"]) == (device, kind)
    ]


def document(inside: str, head: str = HEAD) -> bytes:
    return f'{head}<nvidia_smi_log>\n<gpu id="00000000:1B:00.0">\n{inside}\n</gpu>\n</nvidia_smi_log>\n'.encode()


def test_state_of_two_gpus_as_a_newer_driver_tells_it() -> None:
    result = sample(NEW, captured_ns=5)
    assert result.problems == []
    sick = result.row("devices", device="GPU-1")
    assert (sick["pci"], sick["model"], sick["state"]) == ("0000:43:00.0", "NVIDIA H100 80GB HBM3", "P0")
    assert result.row("links", device_a="GPU-0")["rate_bytes_per_s"] == 16 * 3_938_000_000
    found = readings(result, "GPU-1")
    assert {name: found[name] for name in ("pcie_gen", "pcie_width", "pcie_width_max")} == {
        "pcie_gen": 5,
        "pcie_width": 8,
        "pcie_width_max": 16,
    }
    assert (found["power_mw"], found["power_limit_mw"], found["temperature_margin_c"]) == (388_900, 700_000, 0)
    assert (found["ecc_volatile_uncorrected"], found["remapped_rows_uncorrected"]) == (2, 2)
    assert found["throttled_us.hw_thermal_slowdown"] == 5_210_337
    assert "retired_pages_pending" not in found
    assert {row["time_ns"] for row in result.rows("counters")} == {5}


def test_reasons_states_and_compute_processes_are_events() -> None:
    result = sample(NEW)
    assert events(result, "GPU-0", "throttle") == []
    assert [text for _, text in events(result, "GPU-1", "throttle")] == ["hw_slowdown", "hw_thermal_slowdown"]
    assert len(events(result, "GPU-1", "remapped_rows_pending")) == 1
    assert events(result, "GPU-1", "process") == [(41208, "python3.11"), (52990, "server")]
    assert readings(result, "GPU-1")["process_memory_bytes.52990"] == 6144 << 20


def test_an_older_driver_says_the_same_in_other_words() -> None:
    result = sample(OLD)
    found = readings(result, "GPU-0")
    assert (found["power_limit_mw"], found["power_limit_default_mw"], found["clock_sm_mhz"]) == (250_000, 400_000, 1065)
    assert events(result, "GPU-0", "throttle") == [(None, "sw_power_cap")]
    assert found["temperature_slowdown_c"] == 89


def test_before_ampere_errors_come_as_totals_and_pages_are_retired() -> None:
    errors = "<ecc_errors><volatile><double_bit><cbu>3</cbu><total>3</total></double_bit></volatile></ecc_errors>"
    pages = "<retired_pages><double_bit_retirement><retired_count>4</retired_count></double_bit_retirement>"
    result = read(document(f"{errors}{pages}<pending_retirement>Yes</pending_retirement></retired_pages>"))
    found = readings(result, "GPU-0")
    assert (found["ecc_volatile_uncorrected"], found["retired_pages_double_bit"], found["retired_pages_pending"]) == (3, 4, 1)
    assert "ecc_volatile_corrected" not in found
    assert len(events(result, "GPU-0", "retired_pages_pending")) == 1


@pytest.mark.parametrize(
    "text", ["N/A", "[N/A]", "Unknown Error", "Requested functionality has been deprecated", "", "1e400 W"]
)
def test_what_is_not_available_is_missing_and_not_zero(text: str) -> None:
    section = f"<gpu_power_readings><average_power_draw>{text}</average_power_draw></gpu_power_readings>"
    assert readings(read(document(section)), "GPU-0") == {}


def test_a_lost_gpu_is_an_event_with_what_is_left_of_it() -> None:
    result = read(document("<uuid>GPU-1</uuid><utilization><gpu_util>[GPU is lost]</gpu_util></utilization>"))
    assert events(result, "GPU-0", "gpu_lost") == [(None, "GPU is lost")]
    assert readings(result, "GPU-0") == {}


def test_a_cut_document_gives_what_came_before() -> None:
    content = (SAMPLES / NEW).read_bytes()
    result = read(content[: content.index(b"<clocks_event_reasons>", content.index(b'id="00000000:43'))])
    assert readings(result, "GPU-0")["power_mw"] == 612_400
    assert readings(result, "GPU-1") == readings(result, "GPU-1") | {"pcie_width": 8}
    assert "power_mw" not in readings(result, "GPU-1")
    (problem,) = result.problems
    assert "cut or damaged" in problem.message and problem.locator is not None and problem.locator.startswith("line=")
    assert not problem.fatal


def test_entities_are_refused_before_they_grow() -> None:
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    head = f'<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a0 "ha">{laughs}]>'
    result = read(document("<uuid>&a11;</uuid>", head))
    assert result.rows("devices") == []
    (problem,) = result.problems
    assert problem.fatal and "refused" in problem.message


def test_other_documents_are_not_opened() -> None:
    head = '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    assert read(document("<uuid>&x;</uuid>", head)).rows("devices") == []
    (row,) = read(document("<uuid>&x;</uuid>")).rows("devices")
    assert row["uuid"] is None


def test_depth_size_and_number_of_values_are_bounded() -> None:
    deep = read(document("<a>" * 100 + "</a>" * 100))
    assert "nested" in deep.problems[0].message
    many = read(document("".join(f"<a{n}>1</a{n}>" for n in range(10_000)) + f"<uuid>{'x' * 100_000}</uuid>"))
    assert many.problems == []
    long = read(document(f"<uuid>{'x' * 100_000}</uuid>"))
    assert len(long.row("devices", device="GPU-0")["uuid"]) == 512
    huge = read(document(" " * (33 << 20)))
    assert "larger" in huge.problems[0].message


def test_damaged_bytes_end_in_a_problem_and_never_in_an_error() -> None:
    content, chance = (SAMPLES / NEW).read_bytes(), random.Random(7)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[chance.randrange(200, len(damaged))] = chance.randrange(256)
        result = read(bytes(damaged))
        assert len(result.rows("devices")) == 2 or result.problems


def test_more_gpus_than_a_host_has_are_refused() -> None:
    head = b'<?xml version="1.0" ?>\n<nvidia_smi_log>'
    found = read(head + b"<gpu/>" * 2000 + b"</nvidia_smi_log>", "smi.xml")
    assert len(found.rows("devices")) == 1024
    assert "more than 1024 GPUs" in found.problems[0].message
