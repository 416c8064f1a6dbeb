"""Choice of the device that computes a copy of a model, from what its engine reports (key `device`)."""

import ctypes
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from cluster_serving.job.models.formats import ONNX, OPENVINO, TENSORFLOW, TORCH, Format, imported
from cluster_serving.job.options import AUTO, CPU, ModelOptions
from cluster_serving.protocol.errors import ModelError

NO_GPU = "check that nvidia-smi lists the GPU where the TaskManagers run, and that CUDA_VISIBLE_DEVICES has it"
"""Remedy for an engine that could use CUDA, and finds no device."""

# What `auto` takes. OpenVINO's own AUTO leaves NPUs out too: they lack operations and free batches.
_GPUS = ("cuda", "gpu")
# Engines that a handler without a model of ours may use by itself.
_OF_HANDLERS = (TORCH[0], ONNX, TENSORFLOW[0], OPENVINO)


@dataclass(frozen=True, slots=True)
class Reported:
    """Devices that an engine reports.

    Attributes:
        engine: Name and version of the engine, for messages.
        names: `cpu`, and the others by kind and number: `cuda:0` for one that the engine calls CUDA's; `gpu:0` and
            `npu:0` for those of OpenVINO.
        remedy: What to do if a device is missing.
    """

    engine: str
    names: tuple[str, ...]
    remedy: str


def device_of(format: Format, options: ModelOptions) -> str:
    """Return the device for a copy of a model; the engine is asked unless the options name the CPU.

    Raises:
        ModelError: If the engine does not report a device that the options name.
    """
    if options.device == CPU:
        return CPU
    if not format.devices:
        reported = Reported(format.engine, (CPU,), "it computes on the CPU alone; convert the model to another format")
    else:
        reported = cast("Reported", imported(format.devices)())
    return choose(options.device, reported, options.slot)


def device_of_handler(options: ModelOptions) -> str:
    """Return the device for the code of a handler, by the report of the first engine that is installed.

    The order is PyTorch, ONNX Runtime, TensorFlow, OpenVINO.

    Raises:
        ModelError: As for `device_of`; or if none is installed, and the options name another device than the CPU.
    """
    installed = (format for format in _OF_HANDLERS if importlib.util.find_spec(format.package))
    return device_of(next(installed, Format("Python without an engine", "", "", ())), options)


def choose(wanted: str, reported: Reported, slot: int = 0) -> str:
    """Return the device of a slot: slot i has number i modulo n of the n devices that are meant.

    Args:
        wanted: `auto`, or names separated by commas. A kind, such as `cuda`, means all devices of that kind, and `gpu`
            also those of CUDA.
        reported: Devices of the engine.
        slot: Index of the slot.

    Raises:
        ModelError: If the engine does not report one of the wanted devices.
    """
    if wanted == AUTO:
        meant = [name for name in reported.names if _kind(name) in _GPUS] or [CPU]
    else:
        meant = [name for part in wanted.split(",") for name in _meant(part, wanted, reported)]
    return meant[slot % len(meant)]


def cuda_driver_devices() -> tuple[str, ...]:
    """Return the devices that NVIDIA's driver shows to this process, for an engine that does not list them."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return cuda_names(count.value)


def cuda_names(count: int) -> tuple[str, ...]:
    """Return the names of so many devices of CUDA."""
    return tuple(f"cuda:{index}" for index in range(count))


def _meant(part: str, wanted: str, reported: Reported) -> Sequence[str]:
    kinds = _GPUS if part == "gpu" else (part,)
    if part in reported.names:
        return [part]
    if meant := [name for name in reported.names if _kind(name) in kinds]:
        return meant
    remedy = reported.remedy
    if beside := [name for name in reported.names if _kind(name) == _kind(part)]:
        remedy = f"name one of these, or {_kind(part)} for {'both' if len(beside) == 2 else 'all'} of them"
    listed = ", ".join(reported.names) if len(reported.names) > 1 else "no device but the cpu"
    raise ModelError(f"device is {wanted}, and {reported.engine} reports {listed}: {remedy}; or set device: {AUTO}")


def _kind(name: str) -> str:
    return name.partition(":")[0]
