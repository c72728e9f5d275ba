# SPDX-License-Identifier: Apache-2.0
"""The ranks that a configuration asks for."""

from tokenlight.config import EngineConfig
from tokenlight.spmd import Mesh, Widths


def mesh_of(config: EngineConfig) -> Mesh:
    """As its first rank sees it.

    Raises:
        ConfigError: the widths do not divide each other.
    """
    parallel = config.parallel
    return Mesh.of(
        Widths(
            num_ranks=parallel.num_ranks,
            attn_tp=parallel.attn_width,
            dense_tp=parallel.dense_width,
            moe_tp=parallel.moe_width,
        )
    )
