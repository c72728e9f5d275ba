# SPDX-License-Identifier: Apache-2.0
"""One thread: tiny tensors gain nothing from more, and wait for cores that others use."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
