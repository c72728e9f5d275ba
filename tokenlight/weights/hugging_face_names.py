# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's names of tensors, without the prefixes that differ between model classes."""

# Longest first. A text model inside a larger one is called language_model.
PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")

# Parts of models that see, which a text model does without.
VISION = ("vision_tower.", "multi_modal_projector.")


def plain_name(name: str) -> str:
    """`model.layers.0.mlp.up_proj.weight` -> `layers.0.mlp.up_proj.weight`."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def is_left_out(name: str) -> bool:
    """Whether a plain name is of no use here.

    Old files carry the rotation's frequencies, which follow from the configuration.
    """
    return name.endswith(".rotary_emb.inv_freq") or name.startswith(VISION)
