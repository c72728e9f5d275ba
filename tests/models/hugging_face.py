# SPDX-License-Identifier: Apache-2.0
"""The oracle: transformers' own models, filled with the same numbers."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.models.tiny import Arrays


def make_twin(model_type: str, config: Mapping[str, object], state: Arrays) -> PreTrainedModel:
    """transformers' model of this configuration with exactly these tensors, in float32."""
    tied = "lm_head.weight" not in state
    twin = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(
            model_type, **config, tie_word_embeddings=tied, attn_implementation="eager"
        )
    )
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    missing, unexpected = twin.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    twin.tie_weights()
    return twin.float().eval()


def logits_of(twin: PreTrainedModel, token_ids: Sequence[int]) -> Tensor:
    """Of every token: [T, V]."""
    with torch.inference_mode():
        return twin(torch.tensor([list(token_ids)])).logits[0]
