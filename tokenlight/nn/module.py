# SPDX-License-Identifier: Apache-2.0
"""torch's module, for layers whose result is one tensor."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn


class TensorModule(nn.Module):
    """A module whose call is typed; torch's own returns Any."""

    if TYPE_CHECKING:

        def __call__(self, *args: Any) -> Tensor: ...
