# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's tensors under one set of names, and whether its head is the token table."""

import torch

from tokenlight.base.errors import CheckpointCorrupt
from tokenlight.checkpoint import Checkpoint, TensorEntry
from tokenlight.weights.gguf_names import hugging_face_name
from tokenlight.weights.hugging_face_names import is_left_out, plain_name
from tokenlight.weights.mapped import MappedFiles

HEAD = "lm_head.weight"
TABLE = "embed_tokens.weight"


def plain_entries(checkpoint: Checkpoint) -> dict[str, TensorEntry]:
    """What the model may need, by plain name; names that nobody knows stay as they are.

    Raises:
        CheckpointCorrupt: two tensors have the same plain name.
    """
    entries: dict[str, TensorEntry] = {}
    # Layers that draft further tokens come after the model's own.
    first = checkpoint.config["num_hidden_layers"]
    num_drafting = checkpoint.config.get("num_nextn_predict_layers", 0)
    drafting = tuple(f"layers.{first + index}." for index in range(num_drafting))
    for entry in checkpoint.tensors.values():
        name = entry.name
        if checkpoint.layout == "gguf":
            name = hugging_face_name(name, checkpoint.model_type) or name
        name = plain_name(name)
        if name in entries:
            raise CheckpointCorrupt(
                f"{checkpoint.path}: tensors {entries[name].name!r} and {entry.name!r} "
                f"are for the same place"
            )
        if not (is_left_out(name) or name.startswith(drafting)):
            entries[name] = entry
    return entries


def is_tied(checkpoint: Checkpoint) -> bool:
    """Whether logits come from the token table.

    A configuration that ties is wrong when the file has a head of other numbers; transformers then
    uses that head, and so do we.
    """
    if not checkpoint.config["tie_word_embeddings"]:
        return False
    entries = plain_entries(checkpoint)
    if HEAD not in entries or TABLE not in entries:
        return True
    files = MappedFiles(checkpoint.layout)
    head, table = files.read(entries[HEAD]), files.read(entries[TABLE])
    is_same = head.format == table.format and torch.equal(head.rows, table.rows)
    del head, table
    for name in (HEAD, TABLE):
        files.release(entries[name])
    return is_same
