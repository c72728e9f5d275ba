# SPDX-License-Identifier: Apache-2.0
"""The one table of stored formats, which the kernels take theirs from, is the gguf package's."""

import gguf

from tokenlight.checkpoint import STORED_FORMATS
from tokenlight.checkpoint.gguf.header import TYPE_NAMES


def test_geometry_and_ids_are_the_gguf_packages() -> None:
    theirs = {int(kind): kind.name.lower() for kind in gguf.GGMLQuantizationType}
    for type_id, name in TYPE_NAMES.items():
        assert theirs[type_id] == name
    kinds = {kind.name.lower(): kind for kind in gguf.GGMLQuantizationType}
    for name, stored in STORED_FORMATS.items():
        kind = kinds[name]
        assert gguf.GGML_QUANT_SIZES[kind] == (stored.block_elements, stored.block_bytes)
