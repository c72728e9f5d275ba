# SPDX-License-Identifier: Apache-2.0
"""What tests of several rooms share: the default model's file, threads put back, certificates."""

import functools
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenlight.base.env import read_env
from tokenlight.checkpoint import fetch_default_model

_NUM_GPUS = {"cuda": 1, "multi_gpu": 2}
_TAKE_MINUTES = ("test_fresh_clone.py", "test_f.py", "test_long_context.py", "test_packaging.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--expectations-model`: what `tests/expectations` serves in areas E, F and G."""
    parser.addoption(
        "--expectations-model",
        default="tiny",
        help="tiny (random weights), default, or a GGUF file",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes comes first: the last file to begin keeps other workers waiting."""
    order = {name: place for place, name in enumerate(_TAKE_MINUTES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What needs GPUs is collected everywhere, and skipped where they are not."""
    wanted = max(
        (num for mark, num in _NUM_GPUS.items() if item.get_closest_marker(mark)), default=0
    )
    if wanted and (found := _num_gpus()) < wanted:
        pytest.skip(f"needs {wanted} CUDA GPUs, torch sees {found}")


@functools.cache
def _num_gpus() -> int:
    import torch  # by the tests that ask alone: others must not import it

    return torch.cuda.device_count()


@pytest.fixture(scope="session", autouse=True)
def one_ssl_context() -> Iterator[None]:
    """Each HTTP client reads the machine's certificates: 20 ms, for servers on loopback."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
        yield


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's GGUF, fetched once into the user's cache as `tokenlight serve` does."""
    return fetch_default_model(read_env().cache_dir)


@pytest.fixture
def restored_threads() -> Iterator[None]:
    """The test may change how many threads kernels and torch have."""
    import torch  # by the tests that ask alone: others must not import it

    from tokenlight.kernels import _cpu

    before, torch_before = _cpu.num_threads(), torch.get_num_threads()
    yield
    _cpu.set_num_threads(before)
    torch.set_num_threads(torch_before)
