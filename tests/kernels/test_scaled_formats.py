# SPDX-License-Identifier: Apache-2.0
"""FP8 and INT4 weights with their scales: named in full, one tensor after loading, exact."""

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels.backends import load_backends
from tokenlight.kernels.formats.dequantize import dequantize
from tokenlight.kernels.formats.scaled import ScaledFormat, Scales, block_scaled, parse_scaled

FP8 = ["fp8_e4m3:tensor", "fp8_e4m3:channel", "fp8_e4m3:128x128", "fp8_e4m3:group64"]
INT4 = ["int4:group32", "int4:group64", "int4:group128"]


def spread(scales: torch.Tensor, layout: Scales, n: int, k: int) -> torch.Tensor:
    """The scale of each weight, by its coordinates."""
    row = torch.arange(n)[:, None] // (layout.rows or n)
    column = torch.arange(k)[None, :] // (layout.columns or k)
    return scales[row.expand(n, k), column.expand(n, k)]


def made(name: str, n: int, k: int) -> tuple[ScaledFormat, torch.Tensor, torch.Tensor]:
    torch.manual_seed(n)
    scaled = parse_scaled(name)
    scales = torch.rand(scaled.scales.shape(n, k)) + 0.5
    if scaled.numbers == "fp8_e4m3":
        return scaled, torch.randn(n, k).to(torch.float8_e4m3fn), scales
    return scaled, torch.randint(0, 16, (n, k), dtype=torch.uint8), scales


@pytest.mark.parametrize(("n", "k"), [(3, 128), (130, 384), (5, 64)])
@pytest.mark.parametrize("name", FP8)
def test_fp8_is_its_numbers_times_their_scales(name: str, n: int, k: int) -> None:
    scaled, weight, scales = made(name, n, k)
    rows, weight_format = block_scaled(weight, scales, scaled)
    assert torch.equal(
        dequantize(rows, weight_format), weight.float() * spread(scales, scaled.scales, n, k)
    )
    assert rows.shape == (n, weight_format.row_bytes(k))


@pytest.mark.parametrize("with_zeros", [True, False])
@pytest.mark.parametrize("name", INT4)
def test_int4_is_its_numbers_less_the_zero_times_their_scales(name: str, with_zeros: bool) -> None:
    scaled, weight, scales = made(name, 7, 384)
    zeros = torch.randint(0, 16, scales.shape).float() if with_zeros else None
    rows, weight_format = block_scaled(weight, scales, scaled, zeros)
    offset = 8.0 if zeros is None else spread(zeros, scaled.scales, 7, 384)
    want = (weight.float() - offset) * spread(scales, scaled.scales, 7, 384)
    torch.testing.assert_close(dequantize(rows, weight_format), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FP8[:3] + INT4[:1])
def test_linear_multiplies_them_on_every_device(name: str) -> None:
    scaled, weight, scales = made(name, 6, 256)
    rows, weight_format = block_scaled(weight, scales, scaled)
    x_TK = torch.randn(3, 256)
    want = x_TK @ dequantize(rows, weight_format).T
    got = kernels.linear(x_TK, rows, None, format=weight_format)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    load_backends("cuda")
    packed = kernels.pack_linear(rows, weight_format, 6, 256, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(packed.weight, dequantize(rows, weight_format).bfloat16())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fp8", "'fp8' is ambiguous without its scales; say fp8_e4m3: and one of tensor, 128x128"),
        ("fp8:", "ambiguous"),
        ("fp8:rows", "unknown scales 'rows'"),
        ("int4", "'int4' is ambiguous without its scales; say int4: and one of channel, group32"),
        ("int4:128x128", "unknown scales '128x128'"),
        ("int4:group100", "unknown scales 'group100'"),
        ("nf4:group64", "no weights of type 'nf4:group64'"),
    ],
)
def test_a_type_without_its_scales_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_scaled(text)


@pytest.mark.parametrize("name", FP8 + INT4)
def test_names_read_back(name: str) -> None:
    assert str(parse_scaled(name)) == name
    assert parse_scaled("fp8:channel") == parse_scaled("fp8_e4m3:channel")


def test_scales_of_another_shape_are_refused() -> None:
    scaled, weight, scales = made("fp8_e4m3:128x128", 130, 384)
    with pytest.raises(ValueError, match=r"has scales of \[2, 3\], got torch.float8_e4m3fn and"):
        block_scaled(weight, scales[:1], scaled)
    with pytest.raises(ValueError, match=r"is of torch.float8_e4m3fn"):
        block_scaled(weight.float(), scales, scaled)
