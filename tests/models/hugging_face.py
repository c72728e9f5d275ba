# SPDX-License-Identifier: Apache-2.0
"""The oracle: transformers' own models, filled with the same numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tests.models.tiny import Arrays


def make_twin(model_type: str, config: Mapping[str, object], state: Arrays) -> PreTrainedModel:
    """transformers' model of this configuration with exactly these tensors, in float32."""
    tied = "lm_head.weight" not in state
    settings = {**config, "tie_word_embeddings": tied, "attn_implementation": "eager"}
    twin = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings))
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    missing, unexpected = twin.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    twin.tie_weights()
    return twin.float().eval()


def read_gguf(path: Path, **settings: object) -> PreTrainedModel:
    """transformers' model of a GGUF file, read, dequantized and renamed by its own code.

    Args:
        path: the file.
        settings: what transformers does not read from it and would guess.
    """
    read_config = load_gguf_checkpoint(str(path))["config"]
    settings = {**read_config, "attn_implementation": "eager", **settings}
    twin = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings))
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=twin)
    missing, unexpected = twin.load_state_dict(read["tensors"], strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    twin.tie_weights()
    return twin.float().eval()


def logits_of(twin: PreTrainedModel, token_ids: Sequence[int]) -> Tensor:
    """Of every token: [T, V]."""
    with torch.inference_mode():
        return twin(torch.tensor([list(token_ids)])).logits[0]


def random_state(model_type: str, config: Mapping[str, object], *, seed: int) -> Arrays:
    """Random numbers for every tensor that transformers' model of this configuration has."""
    twin = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config))
    tied = twin.config.tie_word_embeddings
    rng = np.random.default_rng(seed)
    # Gemma's gains are distances from 1.
    centre = 0.0 if model_type.startswith("gemma") else 1.0
    state = {}
    for name, tensor in twin.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        numbers = rng.standard_normal(tuple(tensor.shape), dtype=np.float32)
        if name.endswith("norm.weight"):
            state[name] = centre + 0.1 * numbers
        elif name.endswith((".bias", "_bias", ".sinks")):
            state[name] = 0.3 * numbers
        else:
            columns = tensor.shape[-2 if _is_transposed(model_type, name) else -1]
            state[name] = numbers * np.float32(1.5 / np.sqrt(columns))
    return state


def _is_transposed(model_type: str, name: str) -> bool:
    """Whether a matrix is kept as [in, out]: gpt-oss's experts."""
    return model_type == "gpt_oss" and ".experts." in name
