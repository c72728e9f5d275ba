# SPDX-License-Identifier: Apache-2.0
"""Tiny random models, written as GGUF files by the `gguf` package.

`write_tiny_llama` needs neither torch nor a network, and the same arguments give the same file.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any, TypedDict, Unpack

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.models.gguf_experts import add_expert_sizes, add_latent_sizes, converted

MAX_LAYERS = 32

# Where the float16 scales of a block are, of the formats that the package can only read.
SCALES = {
    "Q2_K": ((80, 82), (82, 84)), "Q3_K": ((108, 110),), "Q4_K": ((0, 2), (2, 4)),
    "Q5_K": ((0, 2), (2, 4)), "Q6_K": ((208, 210),), "IQ4_NL": ((0, 2),),
}  # fmt: skip

Arrays = Mapping[str, NDArray[np.float32]]
Config = Mapping[str, Any]

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FIRST_MERGES = (
    "Ġ t", "h e", "i n", "Ġ a", "Ġt he", "r e", "o n", "Ġ Ġ", "a t", "e r", "in g", "Ġ s", "Ċ Ċ",
)  # fmt: skip


class Shape(TypedDict, total=False):
    """The sizes that a caller may choose; what he leaves out is as in `SMALL`."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int


SMALL: Shape = {
    "vocab_size": 512,
    "hidden_size": 64,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "context": 2048,
}


def write_tiny_llama(
    path: Path,
    *,
    seed: int = 0,
    format: str = "f32",
    tied: bool = True,
    tokenizer: bool = True,
    **shape: Unpack[Shape],
) -> Path:
    """Write a random llama. `format` is that of the matrices, as the package names formats.

    With a tokenizer, `vocab_size` is at least 272: three specials, 256 bytes, 13 merges; what is
    left are merges of letters, so every token but the specials has text.
    """
    config = llama_config(**shape)
    state = random_llama(config, seed=seed, tied=tied)
    write_gguf(path, "llama", config, state, format=format, tokenizer=tokenizer)
    return path


def llama_config(**shape: Unpack[Shape]) -> dict[str, Any]:
    """In config.json's keys."""
    sizes = {**SMALL, **shape}
    return {
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["hidden_size"],
        "intermediate_size": sizes["hidden_size"] * 2,
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes.get("head_dim", sizes["hidden_size"] // sizes["heads"]),
        "max_position_embeddings": sizes["context"],
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }


def random_llama(config: Config, *, seed: int, tied: bool) -> Arrays:
    """Random numbers under Hugging Face's names, scaled so that greedy text varies."""
    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q_rows = config["num_attention_heads"] * config["head_dim"]
    kv_rows = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows: int, columns: int, scale: float = 1.5) -> NDArray[np.float32]:
        numbers = rng.standard_normal((rows, columns), dtype=np.float32)
        return numbers * np.float32(scale / np.sqrt(columns))

    def gain() -> NDArray[np.float32]:
        return 1 + 0.1 * rng.standard_normal(hidden, dtype=np.float32)

    state = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden, 3.0)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        state |= {
            prefix + "input_layernorm.weight": gain(),
            prefix + "self_attn.q_proj.weight": matrix(q_rows, hidden),
            prefix + "self_attn.k_proj.weight": matrix(kv_rows, hidden),
            prefix + "self_attn.v_proj.weight": matrix(kv_rows, hidden),
            prefix + "self_attn.o_proj.weight": matrix(hidden, q_rows),
            prefix + "post_attention_layernorm.weight": gain(),
            prefix + "mlp.gate_proj.weight": matrix(inner, hidden),
            prefix + "mlp.up_proj.weight": matrix(inner, hidden),
            prefix + "mlp.down_proj.weight": matrix(hidden, inner),
        }
    state["model.norm.weight"] = gain()
    if not tied:
        state["lm_head.weight"] = matrix(config["vocab_size"], hidden, 3.0)
    return state


def write_gguf(
    path: Path,
    architecture: str,
    config: Config,
    state: Arrays,
    *,
    format: str = "f32",
    tokenizer: bool = True,
    formats: Mapping[str, str] | None = None,
    splits_kv_b: bool = True,
) -> None:
    """Write `state` (Hugging Face's names) as llama.cpp's converter would.

    Args:
        path: the file to write.
        architecture: GGUF's general.architecture.
        config: in config.json's keys.
        state: every tensor.
        format: of all matrices.
        tokenizer: whether to add `tiny_tokenizer`.
        formats: exceptions to `format`, by the tensor's name in `state`.
        splits_kv_b: of latent attention, whether the two halves of kv_b are apart, as they are
            since 2025.
    """
    writer = gguf.GGUFWriter(path, architecture)
    add_sizes(writer, config)
    add_expert_sizes(writer, config)
    if "kv_lora_rank" in config:
        add_latent_sizes(writer, config, splits_kv_b=splits_kv_b)
    else:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    add_rope(writer, config)
    if tokenizer:
        add_tokenizer(writer, config["vocab_size"])
    names = gguf.get_tensor_name_map(
        next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture),
        MAX_LAYERS,
    )
    tensors = converted(architecture, config, state, splits_kv_b=splits_kv_b)
    for name, array in tensors:
        kind = stored_type(array, (formats or {}).get(name, format))
        writer.add_tensor(
            gguf_name(names, name),
            in_gguf_form(architecture, name, blocks_of(array, kind), config),
            raw_dtype=kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(names: gguf.TensorNameMap, name: str) -> str:
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, f"GGUF has no name for {name}"
    return found


def add_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def add_rope(writer: gguf.GGUFWriter, config: Config) -> None:
    parameters = config["rope_parameters"]
    parameters = parameters.get("full_attention", parameters)
    writer.add_rope_freq_base(parameters["rope_theta"])
    if parameters["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(parameters["rope_type"]))
        writer.add_rope_scaling_factor(parameters["factor"])
    if parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
    if parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config["head_dim"], parameters))


def llama3_factors(head_dim: int, parameters: Mapping[str, float]) -> NDArray[np.float32]:
    """What the converter stores for Llama 3: how much each frequency is slowed."""
    factor, tokens = parameters["factor"], parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    factors = []
    for dimension in range(0, head_dim, 2):
        wavelength = 2 * np.pi * parameters["rope_theta"] ** (dimension / head_dim)
        if wavelength < tokens / high:
            factors.append(1.0)
        elif wavelength > tokens / low:
            factors.append(factor)
        else:
            smooth = (tokens / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def stored_type(array: NDArray[np.float32], format: str) -> gguf.GGMLQuantizationType:
    """Vectors stay float32, as in every file of llama.cpp's."""
    return gguf.GGMLQuantizationType["F32" if array.ndim == 1 else format.upper()]


def blocks_of(array: NDArray[np.float32], kind: gguf.GGMLQuantizationType) -> NDArray[Any]:
    """The array as it is stored.

    The package cannot quantize to some formats, only read them: those get random blocks of about
    the array's size, from a seed that is the array's own.
    """
    try:
        return gguf.quants.quantize(array, kind)
    except NotImplementedError:
        seed = int(np.abs(array).sum() * 1000)
        return random_blocks(array.shape, kind, float(array.std()), seed=seed)


def random_blocks(
    shape: tuple[int, ...], kind: gguf.GGMLQuantizationType, deviation: float, *, seed: int
) -> NDArray[np.uint8]:
    """Random bytes whose scales are set so that the numbers deviate as wanted."""
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    row_bytes = shape[-1] // block_elements * block_bytes
    raw = np.random.default_rng(seed).integers(0, 256, (*shape[:-1], row_bytes), dtype=np.uint8)
    blocks = raw.reshape(-1, block_bytes)

    def set_scales(scale: float) -> float:
        for start, end in SCALES[kind.name]:
            blocks[:, start:end] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        return float(gguf.quants.dequantize(raw, kind).std())

    if kind.name == "MXFP4":  # a power of two per block
        blocks[:, 0] = 127 + round(np.log2(deviation / 4))
    else:
        set_scales(deviation / set_scales(1.0))
    return raw


def in_gguf_form(architecture: str, name: str, array: NDArray[Any], config: Config) -> NDArray[Any]:
    """What the converter changes.

    Gemma's gains get the 1 that the model adds. The llama architecture rotates neighbours, not
    halves: rows of q and k are interleaved.
    """
    if architecture in ("gemma2", "gemma3") and name.endswith("norm.weight"):
        return array + 1
    if architecture != "llama" or not any(part in name for part in (".q_proj.", ".k_proj.")):
        return array
    key = "num_attention_heads" if ".q_proj." in name else "num_key_value_heads"
    heads = config[key]
    return np.ascontiguousarray(
        array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
        .swapaxes(1, 2)
        .reshape(array.shape)
    )


def byte_characters() -> list[str]:
    """The printable stand-in of each byte in byte-level BPE, as GPT-2 chose them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: chr(byte) for byte in printable}
    stand_ins |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [stand_ins[byte] for byte in range(256)]


def tiny_tokenizer(vocab_size: int) -> tuple[list[str], list[str]]:
    """Tokens (specials first) and merges of a byte-level BPE of exactly `vocab_size` tokens."""
    tokens = [*SPECIAL_TOKENS, *byte_characters()]
    merges = list(FIRST_MERGES)
    known = {merge.replace(" ", "") for merge in merges}
    stems = list(ascii_lowercase)
    while len(tokens) + len(merges) < vocab_size:
        pairs = [pair for pair in product(stems, ascii_lowercase) if "".join(pair) not in known]
        pairs = pairs[: vocab_size - len(tokens) - len(merges)]
        merges += [" ".join(pair) for pair in pairs]
        stems = ["".join(pair) for pair in pairs]
        known.update(stems)
    tokens += [merge.replace(" ", "") for merge in merges]
    assert len(tokens) == vocab_size, "a tokenizer needs at least 272 tokens"
    return tokens, merges


def add_tokenizer(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    tokens, merges = tiny_tokenizer(vocab_size)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([control if token in SPECIAL_TOKENS else normal for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)
