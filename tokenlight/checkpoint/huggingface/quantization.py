# SPDX-License-Identifier: Apache-2.0
"""Reads `quantization_config`, and joins the tensors of each quantized matrix into one entry.

A layer X has its matrix as X.weight and X.weight_scale, say, or as X.qweight, X.scales and
X.qzeros. Layers that a configuration leaves out have one tensor as ever, so what is there decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tokenlight.base.errors import CheckpointCorrupt, UnsupportedCheckpoint
from tokenlight.checkpoint.checkpoint import ScaledParts, TensorEntry
from tokenlight.checkpoint.huggingface.safetensors import PART_FORMATS

# Method -> what of it is read; docs/models.md says the same.
METHODS = {
    "fp8": "e4m3, a scale per block of 128x128, per tensor or per channel",
    "fbgemm_fp8": "e4m3, a scale per channel",
    "compressed-tensors": "float-quantized (e4m3; tensor, channel, group, 128x128), "
    "pack-quantized (4 bits; group, channel), mxfp4-pack-quantized",
    "awq": "4 bits, version gemm",
    "gptq": "4 bits, checkpoint_format gptq or gptq_v2, with or without desc_act",
    "mxfp4": "the experts of gpt-oss",
}
# For activations or cached keys and values in FP8; both are kept wider here.
_UNUSED = ("input_scale", "input_scale_ub", "q_scale", "k_scale", "v_scale", "output_scale",
           "weight_shape")  # fmt: skip
_BLOCK = [128, 128]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How a folder's quantized matrices are stored: names after a layer's, and their type."""

    method: str
    numbers: str
    """fp8_e4m3, int4 or mxfp4."""
    reach: str
    """Of a scale, as `kernels/formats/scaled.py` spells it; tensor also where it is a channel."""
    packing: Literal["rows", "words", "awq", "gptq", "pairs"] = "rows"
    names: tuple[str, str, str, str] = ("weight", "weight_scale", "", "")
    """Of numbers, scales, zeros and each column's group; "" for none."""
    is_symmetric: bool = True
    zero_shift: int = 0


def read_quantization(raw: Mapping[str, Any], path: Path) -> Quantization | None:
    """What config.json says; None where no tensor needs to be joined to others.

    Raises:
        UnsupportedCheckpoint: it says something that is not in `METHODS`.
    """
    stated = raw.get("quantization_config", raw.get("compression_config"))
    if stated is None:
        return None
    stated = stated if isinstance(stated, dict) else {}
    method = stated.get("quant_method")
    # gpt-oss's experts are published so, and nothing else of it is quantized.
    if method == "mxfp4" and raw.get("model_type") == "gpt_oss":
        return None
    reader = _READERS.get(method) if isinstance(method, str) else None
    found = reader(stated) if reader else "which is not supported"
    if isinstance(found, Quantization):
        return found
    supported = "; ".join(f"{name}: {what}" for name, what in METHODS.items())
    raise UnsupportedCheckpoint(
        f"{path}: the weights are quantized as {method!r}, {found}; supported are ({supported}); "
        f"use the original checkpoint or a GGUF file of it"
    )


def _fp8(stated: Mapping[str, Any]) -> Quantization | str:
    if (kind := stated.get("fmt", "e4m3")) not in ("e4m3", "float8_e4m3fn"):
        return f"with fmt {kind!r}"
    block = stated.get("weight_block_size")
    if block is None:
        return Quantization(method="fp8", numbers="fp8_e4m3", reach="tensor")
    if block != _BLOCK:
        return f"with weight_block_size {block}"
    names = ("weight", "weight_scale_inv", "", "")
    return Quantization(method="fp8", numbers="fp8_e4m3", reach="128x128", names=names)


def _fbgemm(stated: Mapping[str, Any]) -> Quantization | str:
    return Quantization(method="fbgemm_fp8", numbers="fp8_e4m3", reach="channel")


def _compressed(stated: Mapping[str, Any]) -> Quantization | str:
    groups = stated.get("config_groups")
    listed = list(groups.values()) if isinstance(groups, dict) else []
    kinds = [each.get("weights") for each in listed if isinstance(each, dict)]
    weights, layout = (kinds or [None])[0], stated.get("format")
    if not isinstance(weights, dict) or any(kind != weights for kind in kinds):
        return "with config_groups that are missing or store weights in different ways"
    bits, kind, strategy = (weights.get(key) for key in ("num_bits", "type", "strategy"))
    described = f"with weights of {bits} bits, type {kind!r}, strategy {strategy!r}"
    symmetric = weights.get("symmetric", True) is not False
    group = weights.get("group_size")
    reach = {"tensor": "tensor", "channel": "channel", "group": f"group{group}"}.get(str(strategy))
    if strategy == "block" and weights.get("block_structure") == _BLOCK:
        reach = "128x128"
    if (bits, kind) == (8, "float") and symmetric and reach is not None:
        return Quantization(method="compressed-tensors", numbers="fp8_e4m3", reach=reach)
    is_int4 = (bits, kind, layout) == (4, "int", "pack-quantized")
    if is_int4 and reach in ("channel", f"group{group}"):
        return Quantization(
            method="compressed-tensors",
            numbers="int4",
            reach=reach,
            packing="words",
            names=("weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx"),
            is_symmetric=symmetric,
        )
    if layout == "mxfp4-pack-quantized" and group == 32:
        return Quantization(
            method="compressed-tensors",
            numbers="mxfp4",
            reach="group32",
            packing="pairs",
            names=("weight_packed", "weight_scale", "", ""),
        )
    return f"{described} and format {layout!r}"


def _awq(stated: Mapping[str, Any]) -> Quantization | str:
    bits, version = stated.get("bits", stated.get("w_bit")), stated.get("version", "gemm")
    if bits != 4 or str(version).lower() != "gemm":
        return f"with bits {bits} and version {version!r}"
    reach = _group(stated.get("group_size", stated.get("q_group_size", 128)))
    names = ("qweight", "scales", "qzeros", "")
    return Quantization(
        method="awq", numbers="int4", reach=reach, packing="awq", names=names, is_symmetric=False
    )


def _gptq(stated: Mapping[str, Any]) -> Quantization | str:
    bits, layout = stated.get("bits"), stated.get("checkpoint_format", "gptq")
    if bits != 4 or layout not in ("gptq", "gptq_v2"):
        return f"with bits {bits} and checkpoint_format {layout!r}"
    return Quantization(
        method="gptq",
        numbers="int4",
        reach=_group(stated.get("group_size", 128)),
        packing="gptq",
        names=("qweight", "scales", "qzeros", "g_idx"),
        is_symmetric=stated.get("sym", True) is not False,
        zero_shift=1 if layout == "gptq" else 0,
    )


def _group(size: Any) -> str:
    return "channel" if size == -1 else f"group{size}"


_READERS: dict[str, Callable[[Mapping[str, Any]], Quantization | str]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "compressed-tensors": _compressed,
    "awq": _awq,
    "gptq": _gptq,
}


def join_scaled(
    tensors: Mapping[str, TensorEntry], how: Quantization, path: Path
) -> dict[str, TensorEntry]:
    """One entry `X.weight` for each quantized matrix; other tensors as they are.

    Raises:
        CheckpointCorrupt: a matrix lacks a tensor that belongs to it.
        UnsupportedCheckpoint: a tensor of a type that only a matrix's part may have is left over.
    """
    left = {name: entry for name, entry in tensors.items() if not _is_unused(name)}
    numbers, scales, zeros, group_of = how.names
    roles = (("numbers", numbers), ("scales", scales), ("zeros", zeros), ("group_of", group_of))
    joined = {}
    for scale_name in [name for name in left if name.rpartition(".")[2] == scales]:
        layer = scale_name.removesuffix(scales)
        parts = {
            role: left.pop(layer + name) for role, name in roles if name and layer + name in left
        }
        needed = "numbers" in parts and ("zeros" in parts or how.is_symmetric or not zeros)
        if not needed:
            lacking = zeros if "numbers" in parts else numbers
            raise CheckpointCorrupt(
                f"{path}: tensor {scale_name!r} is there without {layer + lacking!r}; "
                f"download it again"
            )
        joined[f"{layer}weight"] = _entry(f"{layer}weight", parts, how)
    for name, entry in left.items():
        if entry.format in {stored.name for stored in PART_FORMATS.values()}:
            raise UnsupportedCheckpoint(
                f"{path}: tensor {name!r} is stored as {entry.format}, but there is no "
                f"{scales!r} beside it, as quantization by {how.method!r} has"
            )
    return left | joined


def _is_unused(name: str) -> bool:
    return name.rpartition(".")[2] in _UNUSED


def _entry(name: str, parts: Mapping[str, TensorEntry], how: Quantization) -> TensorEntry:
    numbers, scales = parts["numbers"], parts["scales"]
    rows, columns = (*numbers.shape, 1, 1)[:2]
    shape = {
        "rows": (rows, columns),
        "words": (rows, 8 * columns),
        "awq": (8 * columns, rows),
        "gptq": (columns, 8 * rows),
        "pairs": (rows, 2 * columns),
    }[how.packing]
    num_scales = 1
    for length in scales.shape:
        num_scales *= length
    # A file may have one for each channel where its configuration does not say.
    is_channel = how.reach == "tensor" and num_scales == shape[0] > 1
    reach = "channel" if is_channel else how.reach
    return replace(
        numbers,
        name=name,
        shape=shape,
        format="mxfp4" if how.numbers == "mxfp4" else f"{how.numbers}:{reach}",
        scaled=ScaledParts(
            packing=how.packing,
            numbers=numbers,
            scales=scales,
            zeros=parts.get("zeros"),
            group_of=parts.get("group_of"),
            zero_shift=how.zero_shift,
            is_symmetric=how.is_symmetric,
        ),
    )
