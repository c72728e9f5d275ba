# SPDX-License-Identifier: Apache-2.0
import re

import pytest
import torch
from torch import Tensor

from tokenlight import kernels
from tokenlight.kernels.contract import PORTABLE, REFERENCE, TUNED, Op, Site, op
from tokenlight.kernels.formats import FORMATS

F32_SITE = Site("cpu", torch.float32, torch.float32, None)


def doubling_op() -> Op:
    @op
    def doubled(x_T: Tensor) -> Tensor:
        """Twice x."""
        raise NotImplementedError

    @doubled.implement("reference", device="any", rank=REFERENCE)
    def reference(x_T: Tensor) -> Tensor:
        return x_T + x_T

    return doubled


def test_a_call_runs_the_highest_rank_that_can_serve_it() -> None:
    doubled = doubling_op()
    ran = []

    @doubled.implement("narrow", device="cpu", dtypes={torch.float16}, rank=TUNED)
    def narrow(x_T: Tensor) -> Tensor:
        ran.append("narrow")
        return 2 * x_T

    @doubled.implement("wide", device="cpu", rank=PORTABLE)
    def wide(x_T: Tensor) -> Tensor:
        ran.append("wide")
        return 2 * x_T

    assert doubled(torch.ones(2)).tolist() == [2, 2]
    assert doubled(torch.ones(2, dtype=torch.float16)).tolist() == [2, 2]
    assert ran == ["wide", "narrow"]


def test_an_implementation_registered_late_is_used() -> None:
    doubled = doubling_op()
    assert doubled(torch.ones(1)).item() == 2

    @doubled.implement("late", device="cpu", rank=TUNED)
    def late(x_T: Tensor) -> Tensor:
        return 2 * x_T + 1

    assert doubled(torch.ones(1)).item() == 3


def test_a_missing_feature_rules_an_implementation_out() -> None:
    doubled = doubling_op()
    doubled.implement("matrix", device="cpu", needs={"amx"}, rank=TUNED)(lambda x_T: x_T)
    assert doubled.bind(F32_SITE).backend == "reference"
    assert doubled.implementations[1].why_not(F32_SITE) == "needs amx"


def test_one_for_few_rows_is_bound_where_there_are_known_to_be_no_more() -> None:
    doubled = doubling_op()
    doubled.implement("few", device="cpu", rank=TUNED, max_rows=4)(lambda x_T: x_T)
    bound = [doubled.bind(F32_SITE, num_rows).backend for num_rows in (None, 5, 4, 0)]
    assert bound == ["reference", "reference", "few", "few"]
    few = doubled.implementations[1]
    assert few.why_not(F32_SITE) == "takes up to 4 rows, in compiled steps"
    assert doubled(torch.ones(1)).item() == 2


def test_tensors_go_by_position() -> None:
    with pytest.raises(TypeError, match="doubled takes its tensors by position"):
        doubling_op()(x_T=torch.ones(1))


def test_no_implementation_says_why_for_each() -> None:
    @op
    def nothing(x_T: Tensor) -> Tensor:
        raise NotImplementedError

    nothing.implement("gpu", device="cuda", rank=TUNED)(lambda x_T: x_T)
    with pytest.raises(LookupError, match=r"nothing.*gpu runs on cuda"):
        nothing(torch.ones(1))


def test_two_implementations_cannot_share_a_name() -> None:
    with pytest.raises(ValueError, match="has an implementation named 'reference' already"):
        doubling_op().implement("reference", device="cpu", rank=TUNED)(lambda x_T: x_T)


def test_explain_names_the_choice_and_why_not_the_others() -> None:
    lines = kernels.explain(device="cpu", op="linear")
    assert any(re.search(r"q4_1/tile16\]: cpu.*\(reference: rank 0 < 100", line) for line in lines)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_explain_shows_the_layouts_and_types_that_a_model_has_once_loaded(device: str) -> None:
    """On a CPU blocks are packed, on a GPU widened; keys and values of a byte differ as well."""
    lines = kernels.explain(device=device)
    read = {m[1] for line in lines if (m := re.search(r"\[(?:\w+, )*([^],]+)\]:", line))}
    assert ("q4_1/tile16" in read, "int8" in read) == (device == "cpu", device == "cpu")
    assert ("float8_e4m3fn" in read) == (device == "cuda")
    assert "bf16" in read
    assert "q4_1" not in read


def test_explain_covers_every_op() -> None:
    named = {line.split("[")[0] for line in kernels.explain(device="cpu")[1:]}
    assert named == set(kernels.OPS)


def test_explain_refuses_an_unknown_op() -> None:
    with pytest.raises(ValueError, match="no op 'convolve'; the ops are add, "):
        kernels.explain(op="convolve")


def test_every_op_has_a_native_cpu_implementation_for_what_loading_gives_it() -> None:
    for name, weight_format in FORMATS.items():
        weight = torch.zeros(16, weight_format.row_bytes(256), dtype=torch.uint8)
        packed = kernels.pack_linear(weight, weight_format, 16, 256)
        site = Site("cpu", torch.float32, packed.weight.dtype, packed.format)
        assert kernels.linear.bind(site).backend == "cpu", name


def test_a_withdrawn_implementation_serves_nothing_more() -> None:
    doubled = doubling_op()

    @doubled.implement("fast", device="cpu", rank=TUNED)
    def fast(x_T: Tensor) -> Tensor:
        return 2 * x_T + 1

    assert doubled(torch.ones(1)).item() == 3
    doubled.withdraw("fast")
    assert doubled(torch.ones(1)).item() == 2
    assert doubled.bind(F32_SITE).backend == "reference"
    doubled.withdraw("unknown")
    assert [i.backend for i in doubled.implementations] == ["reference"]
