# SPDX-License-Identifier: Apache-2.0
"""Linear layers over weights that stay as the checkpoint stores them, quantized or dense.

Shapes: T tokens, K in features, N out features.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from tokenlight import kernels
from tokenlight.nn.module import TensorModule
from tokenlight.weights import Slot, StoredTensor, Target, pack_rows


class Linear(TensorModule):
    """y = x W^T + b."""

    weight: Tensor
    bias_N: Tensor | None

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.has_bias = bias
        self.format = kernels.FORMATS["f32"]
        self.register_buffer("weight", None)
        self.register_buffer("bias_N", None)

    def forward(self, x_TK: Tensor) -> Tensor:
        return kernels.linear(x_TK, self.weight, self.bias_N, format=self.format)

    def slots(self) -> Mapping[str, Slot]:
        weight = Slot(part_shapes=((self.out_features, self.in_features),), fill=self.fill_weight)
        bias = Slot(part_shapes=((self.out_features,),), fill=self.fill_bias)
        return {"weight": weight, "bias": bias} if self.has_bias else {"weight": weight}

    def fill_weight(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.weight, self.format = pack_rows(parts, target)

    def fill_bias(self, parts: Sequence[StoredTensor], target: Target) -> None:
        self.bias_N = torch.cat([part.dense(target.dtype) for part in parts]).to(target.device)


class FusedLinear(TensorModule):
    """Several linears of one input, their outputs side by side.

    Neighbours of one format are one product. Mixed quantizations store the parts in different
    formats: those have one product per run of equal formats.
    """

    def __init__(
        self, in_features: int, out_features: Sequence[int], *, bias: bool = False
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = tuple(out_features)
        self.has_bias = bias
        self.runs = nn.ModuleList()

    def forward(self, x_TK: Tensor) -> Tensor:
        outputs = [run(x_TK) for run in self.runs]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)

    def slots(self) -> Mapping[str, Slot]:
        weight = Slot(
            part_shapes=tuple((rows, self.in_features) for rows in self.out_features),
            fill=self._fill_weight,
        )
        bias = Slot(part_shapes=tuple((rows,) for rows in self.out_features), fill=self._fill_bias)
        return {"weight": weight, "bias": bias} if self.has_bias else {"weight": weight}

    def _fill_weight(self, parts: Sequence[StoredTensor], target: Target) -> None:
        for _, group in groupby(parts, key=lambda part: part.format):
            members = list(group)
            num_rows = sum(part.shape[0] for part in members)
            run = Linear(self.in_features, num_rows, bias=self.has_bias)
            run.fill_weight(members, target)
            self.runs.append(run)

    def _fill_bias(self, parts: Sequence[StoredTensor], target: Target) -> None:
        bias_N = torch.cat([part.dense(target.dtype) for part in parts]).to(target.device)
        rows = [run.out_features for run in self.runs]
        for run, run_bias_N in zip(self.runs, bias_N.split(rows), strict=True):
            run.bias_N = run_bias_N
