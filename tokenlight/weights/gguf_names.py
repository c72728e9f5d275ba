# SPDX-License-Identifier: Apache-2.0
"""GGUF's names of tensors in Hugging Face's: one table for all architectures."""

TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "rope_freqs": "model.ropes.full_attention",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj",
}
# Tensors that are no layer's weight or bias there.
LAYER_TENSORS = {
    "attn_sinks.weight": "self_attn.sinks",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
}

# What the Gemmas mean by a name.
GEMMA_LAYER = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
LAYER_OF = {
    "gemma2": GEMMA_LAYER,
    "gemma3": GEMMA_LAYER,
    "gpt_oss": {"post_attention_norm": "post_attention_layernorm"},
    "seed_oss": {"post_attention_norm": "post_attention_layernorm"},
}

# Architectures whose rows of q and k are stored for rotating neighbours; whose heads those are.
ROTATES_NEIGHBOURS = {"llama"}
ROTATED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}


def hugging_face_name(name: str, model_type: str) -> str | None:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; None when unknown."""
    stem, _, kind = name.rpartition(".")
    if stem in TOP:
        return f"{TOP[stem]}.{kind}"
    block, _, rest = stem.partition(".")
    layer, _, part = rest.partition(".")
    if block == "blk" and layer.isdecimal() and (tensor := LAYER_TENSORS.get(f"{part}.{kind}")):
        return f"model.layers.{int(layer)}.{tensor}"
    ours = LAYER_OF.get(model_type, {}).get(part) or LAYER.get(part)
    if block == "blk" and layer.isdecimal() and ours:
        return f"model.layers.{int(layer)}.{ours}.{kind}"
    return None
