# SPDX-License-Identifier: Apache-2.0
"""A folder of Hugging Face's kind as a checkpoint: config.json, safetensors, tokenizer files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenlight.base.errors import CheckpointCorrupt, CheckpointNotFound, UnsupportedCheckpoint
from tokenlight.checkpoint.checkpoint import Checkpoint, TensorEntry, TokenizerSource
from tokenlight.checkpoint.huggingface.quantization import join_scaled, read_quantization
from tokenlight.checkpoint.huggingface.safetensors import read_safetensors
from tokenlight.checkpoint.model_config import complete_config

MAX_JSON_BYTES = 64 << 20
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Everything but weights that a tokenizer or a template may be made of.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "generation_config.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja",
    "chat_template.json", "vocab.json", "merges.txt", "tokenizer.model",
)  # fmt: skip

# From generation_config.json, in the bounds that a request's own fields have.
_NUMBER = (int, float)
_SAMPLING = {
    "temperature": (_NUMBER, 0, 2),
    "top_p": (_NUMBER, 0, 1),
    "top_k": ((int,), 1, 2**31 - 1),
    "min_p": (_NUMBER, 0, 1),
    "repetition_penalty": (_NUMBER, 1e-9, 10),
}


def folder_tokenizer(path: Path) -> TokenizerSource:
    """The tokenizer's files in a folder, be there a model beside them or not."""
    files = {name: path / name for name in TOKENIZER_FILES if (path / name).is_file()}
    return TokenizerSource(kind="huggingface", files=files)


def open_folder(path: Path, *, has_weights: bool = True) -> Checkpoint:
    """Read a folder's configuration and headers.

    Raises:
        CheckpointNotFound: it has no config.json, or no weights.
        CheckpointCorrupt: a file is cut short or contradicts another.
        UnsupportedCheckpoint: it is sound, but not of a kind that we have.
    """
    raw = _read_json(_config_file(path))
    quantization = read_quantization(raw, path)
    config = complete_config(_text_config(raw), path / "config.json")
    generation = _find_json(path / "generation_config.json")
    templates = _templates(path, _find_json(path / "tokenizer_config.json"))
    tensors = _tensors(path, with_parts=quantization is not None) if has_weights else {}
    num_bytes = sum(each.stat().st_size for each in {e.path for e in tensors.values()})
    if quantization is not None:
        tensors = join_scaled(tensors, quantization, path)
    return Checkpoint(
        path=path,
        name=_name(path),
        layout="huggingface",
        model_type=config["model_type"],
        config=config,
        tensors=tensors,
        tokenizer=folder_tokenizer(path),
        chat_template=templates.get("default"),
        tool_template=templates.get("tool_use"),
        bos_token_id=config["bos_token_id"],
        eos_token_ids=_eos_token_ids(config, generation),
        sampling=_sampling(generation),
        num_bytes=num_bytes,
    )


def _config_file(path: Path) -> Path:
    file = path / "config.json"
    if file.exists():
        return file
    ggufs = sorted(each.name for each in path.glob("*.gguf"))
    advice = (
        f"name a GGUF file in it: {path / ggufs[0]}"
        if ggufs
        else "give a folder with config.json and safetensors, or a GGUF file"
    )
    raise CheckpointNotFound(f"{path}: the folder has no config.json; {advice}")


def _text_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text model's part, with what is stated for the whole."""
    text = raw.get("text_config")
    if not isinstance(text, dict):
        return raw
    shared = ("model_type", "tie_word_embeddings", "bos_token_id", "eos_token_id")
    return {key: raw[key] for key in shared if raw.get(key) is not None} | text


def _name(path: Path) -> str:
    """The folder's name; of a snapshot in the Hub's cache, the model's id."""
    resolved = path.absolute()
    repository = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/")
    return resolved.name


def _tensors(path: Path, *, with_parts: bool) -> dict[str, TensorEntry]:
    if (path / INDEX).is_file():
        return _sharded_tensors(path, with_parts=with_parts)
    if (path / WEIGHTS).is_file():
        return read_safetensors(path / WEIGHTS, with_parts=with_parts)
    if any(path.glob("*.bin")) or any(path.glob("*.pth")):
        raise UnsupportedCheckpoint(
            f"{path}: the weights are Python pickles, which can run code and are not read; "
            f"convert them to safetensors"
        )
    raise CheckpointNotFound(f"{path}: neither {WEIGHTS} nor {INDEX} is there")


def _sharded_tensors(path: Path, *, with_parts: bool) -> dict[str, TensorEntry]:
    weight_map = _read_json(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointCorrupt(f"{path / INDEX}: weight_map is missing or empty")
    found: dict[str, TensorEntry] = {}
    shards = sorted({str(name) for name in weight_map.values()})
    for shard in shards:
        if Path(shard).name != shard:
            raise CheckpointCorrupt(f"{path / INDEX}: {shard!r} is not the name of a file here")
    if lost := [shard for shard in shards if not (path / shard).is_file()]:
        raise CheckpointNotFound(
            f"{path}: the weights are {len(shards)} files, of which {len(lost)} are missing: "
            f"{', '.join(lost[:5])}{' ...' if len(lost) > 5 else ''}; download the model again"
        )
    for shard in shards:
        for name, entry in read_safetensors(path / shard, with_parts=with_parts).items():
            if weight_map.get(name) != shard:
                raise CheckpointCorrupt(
                    f"{path / shard}: tensor {name!r} is not where {INDEX} places it"
                )
            found[name] = entry
    if absent := weight_map.keys() - found.keys():
        raise CheckpointCorrupt(f"{path}: tensor {min(absent)!r} of {INDEX} is in no file")
    return found


def _templates(path: Path, tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates by name: "default", and "tool_use" where tools have one of their own."""
    file = path / "chat_template.jinja"
    if file.is_file():
        for_tools = path / "additional_chat_templates" / "tool_use.jinja"
        more = {"tool_use": _read_text(for_tools)} if for_tools.is_file() else {}
        return {"default": _read_text(file), **more}
    stated = tokenizer_config.get("chat_template")
    if stated is None:  # models that see keep it with what reads their images
        stated = _find_json(path / "chat_template.json").get("chat_template")
    listed = stated if isinstance(stated, list) else [{"name": "default", "template": stated}]
    named = [(each.get("name"), each.get("template")) for each in listed if isinstance(each, dict)]
    return {name: text for name, text in named if isinstance(name, str) and isinstance(text, str)}


def _eos_token_ids(config: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    """What generation stops at: generation_config.json's own word, then config.json's."""
    stated = generation.get("eos_token_id")
    listed = stated if isinstance(stated, list) else [stated]
    known = [each for each in listed if type(each) is int and 0 <= each < config["vocab_size"]]
    return tuple(dict.fromkeys([*known, *config["eos_token_id"]]))


def _sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """What the makers advise; what no request could ask for is left out."""
    found: dict[str, float] = {}
    for name, (kinds, least, most) in _SAMPLING.items():
        value: Any = generation.get(name)
        if type(value) in kinds and least <= value <= most:
            found[name] = value
    return found


def _find_json(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.is_file() else {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read_text(path))
    except (ValueError, RecursionError) as fault:
        raise CheckpointCorrupt(f"{path}: is not sound JSON: {fault}") from fault
    if not isinstance(found, dict):
        raise CheckpointCorrupt(f"{path}: is not a JSON object")
    return found


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointCorrupt(f"{path}: has more than {MAX_JSON_BYTES} bytes")
        return path.read_text("utf-8")
    except OSError as fault:
        raise CheckpointNotFound(f"{path}: cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise CheckpointCorrupt(f"{path}: is not UTF-8") from fault
