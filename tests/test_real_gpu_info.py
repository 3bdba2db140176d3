"""Which backend a machine gets, and what it is told: tables of made-up machines."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from real_gpu import info
from real_gpu.backends import MULTI_RANK, Machine, Torch, advice, choose, with_hint
from real_gpu.commands import COMMANDS, parser
from real_gpu.commands.vendor_flags import force_nccl
from real_gpu.device import counters as device_counters
from real_gpu.job import RunError

H100S = Torch("2.13", ("NVIDIA H100",) * 8, "2.30.7", True)
T4S = Torch("2.13", ("Tesla T4",) * 2, "2.29.3", True)
ONE = Torch("2.13", ("NVIDIA GeForce RTX 4090",), "2.30.7", True)
SLICE = Torch("2.13", ("NVIDIA A100 MIG 1g.10gb",), "2.30.7", True)
NO_NCCL = Torch("2.13", ("NVIDIA GeForce RTX 4090",) * 2, None, True)
CPU = Torch("2.13", gloo=True)
SEVERAL = {MULTI_RANK: "1"}


@pytest.mark.parametrize(
    ("torch", "gpus", "asked", "name", "backend", "why"),
    [
        (H100S, 8, "auto", "ring", "nccl", "8 CUDA devices and NCCL 2.30.7"),
        (H100S, 4, "auto", "torch.ddp", "nccl", "8 CUDA devices"),
        (H100S, 9, "auto", "ring", "gloo", "9 ranks are more than 8 CUDA devices"),
        (H100S, 9, "auto", "ring", "gloo", "on GPUs with --gpus 8"),
        (H100S, 8, "gloo", "ring", "gloo", "asked for"),
        (H100S, 8, "device", "ring", "device", "asked for: buffers on NVIDIA H100"),
        (H100S, 8, "auto", "torch.dp", "device", "one process on 8 CUDA devices"),
        (T4S, 2, "auto", "torch.all_reduce", "nccl", "2 CUDA devices and NCCL 2.29.3"),
        (ONE, 4, "auto", "ring", "device", "one GPU: buffers on NVIDIA GeForce RTX 4090"),
        (ONE, 4, "auto", "torch.all_reduce", "gloo", "4 ranks are more than 1 CUDA device"),
        (ONE, 1, "auto", "ring", "nccl", "1 CUDA device and NCCL"),
        (SLICE, 4, "auto", "ring", "device", "a MIG slice, which NCCL cannot join"),
        (NO_NCCL, 2, "auto", "ring", "gloo", "this torch has no NCCL"),
        (CPU, 4, "auto", "ring", "gloo", "no CUDA device"),
        (CPU, 4, "device", "ring", "device", "its times mean nothing"),
    ],
)
def test_the_backend_and_why(torch, gpus, asked, name, backend, why):
    choice = choose(Machine(torch), asked, gpus, name=name)
    assert choice.backend == backend
    assert why in choice.why
    assert "\n" not in choice.why


@pytest.mark.parametrize(
    ("torch", "told", "gpus", "asked", "name", "says"),
    [
        (H100S, {}, 9, "nccl", "ring", f"8 CUDA devices here; .* {MULTI_RANK}=1"),
        (T4S, {}, 3, "nccl", "ring", "use --backend gloo or --backend device, or fewer ranks$"),
        (T4S, SEVERAL, 4, "nccl", "ring", "needs NCCL 2.30, this is 2.29.3"),
        (SLICE, SEVERAL, 2, "nccl", "ring", "joins no MIG slices; use .* or --backend device$"),
        (T4S, {}, 3, "nccl", "torch.ddp", "use --backend gloo, or fewer ranks$"),
        (CPU, {}, 2, "nccl", "ring", "this torch has no NCCL; use --backend gloo"),
        (NO_NCCL, {}, 2, "nccl", "ring", "this torch has no NCCL"),
        (H100S, {}, 2, "device", "torch.ddp", "needs a process for each rank"),
        (H100S, {}, 2, "device", "torch.all_reduce", "the algorithms, and torch.dp"),
        (H100S, {}, 9, "auto", "torch.dp", "9 CUDA devices are needed, 8 are here"),
        (H100S, {}, 2, "nccl", "torch.dp", "accepted: --backend auto"),
        (Torch("2.13"), {}, 2, "auto", "ring", "neither NCCL with enough GPUs nor Gloo"),
        (Torch(problem="torch is not installed"), {}, 2, "auto", "ring", "not installed"),
    ],
)
def test_what_cannot_run_is_told_what_can(torch, told, gpus, asked, name, says):
    with pytest.raises(RunError, match=says):
        choose(Machine(torch, environment=told), asked, gpus, name=name)


@pytest.mark.parametrize(
    ("nccl", "allowed"),
    [("2.30.4", True), ("2.30", True), ("3.0.1", True), ("2.29.7", False), ("2.4.8", False)],
)
def test_several_ranks_on_a_gpu_need_nccl_2_30_and_consent(nccl, allowed):
    torch = Torch("2.13", ("NVIDIA L4",), nccl, True)
    if allowed:
        choice = choose(Machine(torch, environment=SEVERAL), "nccl", 2)
        assert choice.backend == "nccl"
        assert "2 ranks on 1 CUDA device" in choice.why
        assert "experimental" in choice.why
    else:
        with pytest.raises(RunError, match=r"needs NCCL 2\.30"):
            choose(Machine(torch, environment=SEVERAL), "nccl", 2)
    with pytest.raises(RunError, match="need as many"):
        choose(Machine(torch), "nccl", 2)


@pytest.mark.parametrize("torch", [H100S, Torch(problem="torch is not installed")])
def test_a_shaped_network_is_between_processes_on_the_cpu(torch):
    if not torch.problem:
        assert choose(Machine(torch), "auto", 4, shaped=True).backend == "gloo"
    for asked in ("nccl", "device"):
        with pytest.raises(ValueError, match="between CPU processes; accepted: --backend gloo"):
            choose(Machine(torch), asked, 4, shaped=True)
    with pytest.raises(ValueError, match=r"torch\.dp is one process without a network"):
        choose(Machine(torch), "auto", 2, shaped=True, name="torch.dp")


@pytest.mark.parametrize("torch", [ONE, SLICE])
def test_where_each_rank_must_be_a_process_no_buffers_stand_for_them(torch):
    assert choose(Machine(torch), "auto", 2, processes=True).backend == "gloo"
    assert choose(Machine(torch), "auto", 2).backend == "device"
    assert choose(Machine(H100S), "auto", 2, processes=True).backend == "nccl"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("step", ["ddp", "--model", "resnet50", "--forward", "1ms", "--backward", "2ms"]),
        ("calibrate", []),
        ("validate", ["--network", "none"]),
    ],
)
def test_steps_calibrations_and_suites_on_one_gpu_are_between_processes(
    command, words, monkeypatch, tmp_path
):
    """Each goes as far as its processes, which a fake refuses to start."""
    monkeypatch.setattr(info, "torch_here", lambda: ONE)
    monkeypatch.setattr(info, "_may_have_gpu", lambda: True)
    jobs = []

    def measure(job, on_result=None):
        jobs.append(job)
        raise RunError("enough")

    monkeypatch.setattr("real_gpu.processes.stage.measure", measure)
    words = [command, *words, "--gpus", "2", "--out", str(tmp_path / "out")]
    with pytest.raises(RunError, match="enough"):
        COMMANDS[command].command(parser().parse_args(words))
    assert [job.backend for job in jobs] == ["gloo"]


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (Machine(H100S, gpu_signs=True), "NCCL_P2P_DISABLE=1"),
        (Machine(H100S, gpu_signs=True), "without InfiniBand"),
        (Machine(SLICE, gpu_signs=True), "MIG: a process sees one slice"),
        (Machine(ONE, gpu_signs=True), "one GPU: schedules run between buffers"),
        (Machine(CPU), "no GPU: over Gloo"),
        (Machine(CPU, gpu_signs=True), "torch sees no device"),
        (Machine(CPU, platform="win32"), "Windows: Gloo on the CPU"),
        (Machine(CPU, platform="darwin"), "Gloo takes no MPS tensors"),
        (Machine(T4S, wsl=True), "WSL: as on Linux"),
        (Machine(T4S, notebook="Kaggle"), "never fork or spawn"),
        (Machine(CPU), "not root: the shaped network runs in a user namespace"),
    ],
)
def test_every_kind_of_machine_is_told_what_holds_there(machine, says):
    assert any(says in text for text in advice(machine))


def test_ranks_that_never_answer_over_nccl_are_told_what_to_try():
    silent = "0 of 2 ranks answered 'run' within 40 s; missing: rank 0, 1"
    assert "NCCL_P2P_DISABLE=1" in with_hint(silent, "nccl", {})
    assert with_hint(silent, "gloo", {}) == silent
    assert with_hint(silent, "nccl", {"NCCL_P2P_DISABLE": "1"}) == silent
    wrong = "ring gave a wrong result: rank 0, chunk 0"
    assert with_hint(wrong, "nccl", {}) == wrong


def test_nothing_is_said_where_it_does_not_hold():
    assert advice(Machine(CPU, root=True)) == advice(Machine(CPU, no_network="no"))
    everything = " ".join(advice(Machine(CPU, root=True)))
    for word in ("MIG", "WSL", "Windows", "macOS", "notebook", "P2P", "one GPU"):
        assert word not in everything


def test_facts_of_this_machine_are_found(monkeypatch):
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("NCCL_TOPO_FILE", "topo.xml")
    monkeypatch.setenv("NCCL_NET_PLUGIN", "/opt/lib.so")
    monkeypatch.setattr(info.platform, "release", lambda: "5.15.90-microsoft-standard-WSL2")
    machine = info.machine_here(CPU)
    assert (machine.notebook, machine.wsl, machine.platform) == ("Kaggle", True, sys.platform)
    told = {k: v for k, v in machine.environment.items() if "WIN_" not in k}
    assert told == {"NCCL_DEBUG": "INFO"}  # a record holds no folders and no names


def test_forcing_nccl_reaches_the_ranks_environment(monkeypatch):
    for name in ("ALGO", "PROTO", "WIN_ENABLE", "NVLS_ENABLE", "COLLNET_ENABLE"):
        monkeypatch.setenv(f"NCCL_{name}", "unset")
    words = ["run", "ring", "--gpus", "2", "--size", "1KiB", "--out", "r", "--backend", "nccl"]
    force_nccl(parser().parse_args([*words, "--nccl-algo", "ring", "--nccl-proto", "simple"]))
    assert info.nccl_variables() == {
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "Simple",
        "NCCL_WIN_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_COLLNET_ENABLE": "0",
    }


class FakeNvml:
    """What the package ``pynvml`` offers, as far as it is used."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139

    def __init__(
        self, sums: bool | None, links: int, counting: bool = True, no_way: int | None = None
    ) -> None:
        self.sums, self.links, self.open = sums, links, 0
        self.counting, self.no_way = counting, no_way

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return b"570.1"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1":
            raise self.NVMLError
        return "handle"

    def nvmlDeviceGetFieldValues(self, handle, asked):
        return [self._field(way, scope) for way, scope in asked]

    def _field(self, way, scope):
        is_sum = scope == 2**32 - 1
        known = (self.sums is not False if is_sum else scope < self.links) and way != self.no_way
        counted = self.counting and not (is_sum and self.sums is None)  # else a zero that stays
        kib = counted * (way - 137) * (self.links if is_sum else 1)
        value = SimpleNamespace(ullVal=kib)
        return SimpleNamespace(fieldId=way, nvmlReturn=0 if known else 3, value=value)


@pytest.mark.parametrize("sums", [True, False, None])
def test_nvlink_bytes_come_from_the_sum_or_the_links(sums, monkeypatch):
    fake = FakeNvml(sums, links=4)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert device_counters.nvlink_bytes("GPU-1") == {"sent": 4 * 1024, "received": 8 * 1024}
    assert device_counters.nvlink_bytes("GPU-2") is None
    assert device_counters.driver_version() == "570.1"
    assert fake.open == 0


def test_without_nvlink_or_nvml_there_is_no_number(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(sums=False, links=0))
    assert device_counters.nvlink_bytes("GPU-1") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert device_counters.nvlink_bytes("GPU-1") is device_counters.driver_version() is None


def test_a_way_that_nobody_counts_is_no_number(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(True, links=4, no_way=139))
    assert device_counters.nvlink_bytes("GPU-1") is None
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(None, links=4, counting=False))
    assert device_counters.nvlink_bytes("GPU-1") == {"sent": 0, "received": 0}


def test_topology_is_the_matrix_without_its_legend(monkeypatch):
    header = "\x1b[4m\tGPU0\tGPU1\tCPU Affinity\x1b[0m\n"
    said = f"{header}GPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n\nLegend:\n"
    done = subprocess.CompletedProcess([], 0, said)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: done)
    assert device_counters.topology() == [
        "GPU0 GPU1 CPU Affinity",
        "GPU0 X NV18 0-31",
        "GPU1 NV18 X 0-31",
    ]
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    assert device_counters.topology() is None
