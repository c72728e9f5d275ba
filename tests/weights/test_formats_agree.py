# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint may hold, the kernels can read: the two tables of formats agree."""

import gguf

from tokenlight.checkpoint import STORED_FORMATS
from tokenlight.checkpoint.gguf.header import TYPE_NAMES
from tokenlight.kernels import FORMATS


def test_every_stored_format_has_kernels() -> None:
    assert STORED_FORMATS.keys() == FORMATS.keys()
    for name, stored in STORED_FORMATS.items():
        read = FORMATS[name]
        assert (read.block_elements, read.block_bytes) == (
            stored.block_elements,
            stored.block_bytes,
        ), name


def test_geometry_and_ids_are_the_gguf_packages() -> None:
    theirs = {int(kind): kind.name.lower() for kind in gguf.GGMLQuantizationType}
    for type_id, name in TYPE_NAMES.items():
        assert theirs[type_id] == name
    kinds = {kind.name.lower(): kind for kind in gguf.GGMLQuantizationType}
    for name, stored in STORED_FORMATS.items():
        kind = kinds[name]
        assert gguf.GGML_QUANT_SIZES[kind] == (stored.block_elements, stored.block_bytes)
