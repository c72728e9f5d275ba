from collections.abc import Sequence
import enum


def features() -> list[str]:
    """Instruction sets that the kernels can use here, the best last."""

def set_isa(name: str) -> None:
    """Use a lower instruction set than the best: for tests."""

def num_threads() -> int: ...

def set_num_threads(num_threads: int) -> None: ...

def poison_scratch(poison: bool) -> None:
    """Fill scratch memory with NaN before each use: for tests."""

def rms_norm(out: int, x: int, weight: int, num_outer: int, num_inner: int, width: int, outer_stride: int, inner_stride: int, eps: float) -> None: ...

def add_rms_norm(out: int, sum: int, x: int, residual: int, weight: int, num_rows: int, width: int, x_stride: int, residual_stride: int, eps: float) -> None: ...

def add(out: int, x: int, y: int, num_rows: int, width: int, x_stride: int, y_stride: int, factor: float) -> None: ...

def copy_rows(out: int, x: int, picked: int, num_rows: int, num_x_rows: int, width: int, out_stride: int, x_stride: int) -> None: ...

def rope_angles(out: int, positions: int, frequencies: int, num_tokens: int, num_frequencies: int, magnitude: float) -> None: ...

def silu_mul(out: int, x: int, num_rows: int, width: int, x_stride: int, cap: float) -> None: ...

def gelu_tanh_mul(out: int, x: int, num_rows: int, width: int, x_stride: int, cap: float) -> None: ...

def softcap(out: int, x: int, num_rows: int, width: int, x_stride: int, cap: float) -> None: ...

def rope(q: int, k: int, cos_sin: int, num_tokens: int, num_q_heads: int, num_k_heads: int, head_dim: int, rotated: int, q_stride: int, k_stride: int) -> None: ...

class WeightFormat(enum.Enum):
    f32 = 0

    f16 = 1

    bf16 = 2

    fp8_e4m3_32 = 3

    fp8_e4m3_64 = 4

    fp8_e4m3_128 = 5

    q4_0 = 6

    q4_1 = 7

    q5_0 = 8

    q5_1 = 9

    q8_0 = 10

    iq4_nl = 11

    mxfp4 = 12

    q2_k = 13

    q3_k = 14

    q4_k = 15

    q5_k = 16

    q6_k = 17

def linear(y: int, x: int, weight: int, bias: int, num_rows: int, n: int, k: int, x_stride: int, format: WeightFormat, is_gated: bool = False) -> None: ...

class PackQueue:
    """Packs weights in order while Python goes on."""

    def __init__(self) -> None: ...

    def add(self, out: int, parts: Sequence[tuple[int, Sequence[int], Sequence[int]]], num_blocks: int, format: WeightFormat, keep: object | None = None) -> None:
        """
        Quantized rows to layout tile16. Of each part: where it begins, and the sizes and strides in bytes of the dimensions before the last. `keep` owns all this memory.
        """

    def finish(self) -> None:
        """
        Return once everything that was added is packed; what was kept for it is let go.
        """

def embedding(out: int, ids: int, table: int, num_ids: int, num_rows: int, width: int, format: WeightFormat) -> None: ...

class FloatType(enum.Enum):
    f32 = 0

    f16 = 1

    bf16 = 2

    i8 = 3

class PagedBatch:
    """Addresses of a step's arrays, which the caller keeps."""

    def __init__(self, query_starts: int, block_table: int, slots: int, num_requests: int, num_slots: int, num_columns: int, table_stride: int, num_tokens: int, num_blocks: int, block_tokens: int) -> None: ...

def write_kv(batch: PagedBatch, k: int, v: int, k_cache: int, v_cache: int, positions: int, cache_type: FloatType, num_heads: int, head_dim: int, k_stride: int, v_stride: int) -> None: ...

def rope_write_kv(batch: PagedBatch, q: int, k: int, v: int, cos_sin: int, k_cache: int, v_cache: int, positions: int, q_weight: int, k_weight: int, cache_type: FloatType, num_q_heads: int, num_heads: int, head_dim: int, rotated: int, q_stride: int, k_stride: int, v_stride: int, eps: float) -> None: ...

def paged_attention(batch: PagedBatch, out: int, q: int, k_cache: int, v_cache: int, kv_lens: int, sinks: int, cache_type: FloatType, num_heads: int, num_kv_heads: int, head_dim: int, q_stride: int, window: int, scale: float, softcap: float) -> None: ...

def route(experts: int, weights: int, logits: int, bias: int, rows: int, num_experts: int, logits_stride: int, top_k: int, num_groups: int, top_groups: int, group_best: int, is_sigmoid: bool, renormalises: bool, scale: float) -> None: ...

def moe(out: int, x: int, experts: int, routing: int, gate_up: int, down: int, gate_up_bias: int, down_bias: int, rows: int, dim: int, inner: int, num_experts: int, per_token: int, first_expert: int, x_stride: int, gate_up_format: WeightFormat, down_format: WeightFormat, limit: float, alpha: float, shift: float) -> None: ...

def head_linear(y: int, x: int, weight: int, rows: int, num_heads: int, n: int, k: int, x_stride: int, format: WeightFormat) -> None: ...

def write_latent(paged: PagedBatch, latent: int, rotated: int, cache: int, positions: int, cache_type: FloatType, latent_dim: int, rotated_dim: int, latent_stride: int, rotated_stride: int) -> None: ...

def mla_attention(paged: PagedBatch, out: int, q: int, q_tail: int, cache: int, kv_lens: int, cache_type: FloatType, num_heads: int, latent_dim: int, tail_dim: int, q_stride: int, tail_stride: int, scale: float) -> None: ...

class Place:
    """Where an instruction finds a tensor when it runs."""

    @staticmethod
    def none() -> Place: ...

    @staticmethod
    def fixed(address: int) -> Place: ...

    @staticmethod
    def arena(num_bytes: int) -> Place: ...

    @staticmethod
    def field(index: int) -> Place: ...

class Count:
    """Rows: a multiple of a step's tokens or of its sampled rows."""

    def __init__(self, per_token: int, per_sampled: int) -> None: ...

class StepProgram:
    """A step as calls of kernels, with no Python between them."""

    def __init__(self, arena: int, num_fields: int, rounds_to_bytes: bool) -> None: ...

    def __len__(self) -> int: ...

    def set_field(self, index: int, address: int, num_rows: int, num_columns: int, stride: int) -> None: ...

    def run(self, first: int, last: int, num_tokens: int, num_sampled: int) -> None: ...

    def rms_norm(self, out: Place, x: Place, weight: Place, rows: Count, num_inner: int, width: int, outer_stride: int, inner_stride: int, eps: float) -> None: ...

    def add_rms_norm(self, out: Place, sum: Place, x: Place, residual: Place, weight: Place, rows: Count, width: int, x_stride: int, residual_stride: int, eps: float) -> None: ...

    def add(self, out: Place, x: Place, y: Place, rows: Count, width: int, x_stride: int, y_stride: int, factor: float) -> None:
        """`out = x + y`, or `x * factor` where there is no `y`."""

    def copy_rows(self, out: Place, out_column: int, x: Place, picked: Place, rows: Count, x_rows: Count, width: int, out_stride: int, x_stride: int) -> None: ...

    def silu_mul(self, out: Place, x: Place, rows: Count, width: int, x_stride: int, cap: float) -> None: ...

    def gelu_tanh_mul(self, out: Place, x: Place, rows: Count, width: int, x_stride: int, cap: float) -> None: ...

    def softcap(self, out: Place, x: Place, rows: Count, width: int, x_stride: int, cap: float) -> None: ...

    def rope_angles(self, out: Place, positions: Place, frequencies: Place, rows: Count, num_frequencies: int, magnitude: float) -> None: ...

    def rope(self, q: Place, k: Place, cos_sin: Place, rows: Count, num_q_heads: int, num_k_heads: int, head_dim: int, rotated: int, q_stride: int, k_stride: int) -> None: ...

    def linear(self, y: Place, x: Place, weight: Place, bias: Place, rows: Count, n: int, k: int, x_stride: int, format: WeightFormat, is_gated: bool) -> None: ...

    def embedding(self, out: Place, ids: Place, table: Place, rows: Count, table_rows: int, width: int, format: WeightFormat) -> None: ...

    def write_kv(self, kv: KvNode) -> None: ...

    def rope_write_kv(self, kv: KvNode, q: Place, cos_sin: Place, q_weight: Place, k_weight: Place, num_q_heads: int, q_stride: int, rotated: int, eps: float) -> None: ...

    def paged_attention(self, out: Place, q: Place, k_cache: Place, v_cache: Place, kv_lens: Place, sinks: Place, paged: PagedPlaces, cache_type: FloatType, num_heads: int, num_kv_heads: int, head_dim: int, q_stride: int, window: int, scale: float, softcap: float) -> None: ...

    def route(self, experts: Place, weights: Place, logits: Place, bias: Place, rows: Count, num_experts: int, logits_stride: int, top_k: int, num_groups: int, top_groups: int, group_best: int, is_sigmoid: bool, renormalises: bool, scale: float) -> None: ...

    def moe(self, out: Place, x: Place, experts: Place, routing: Place, gate_up: Place, down: Place, gate_up_bias: Place, down_bias: Place, rows: Count, dim: int, inner: int, num_experts: int, per_token: int, first_expert: int, x_stride: int, gate_up_format: WeightFormat, down_format: WeightFormat, limit: float, alpha: float, shift: float) -> None: ...

    def head_linear(self, y: Place, x: Place, weight: Place, rows: Count, num_heads: int, n: int, k: int, x_stride: int, format: WeightFormat) -> None: ...

    def write_latent(self, paged: PagedPlaces, latent: Place, rotated: Place, cache: Place, positions: Place, cache_type: FloatType, latent_dim: int, rotated_dim: int, latent_stride: int, rotated_stride: int) -> None: ...

    def mla_attention(self, paged: PagedPlaces, out: Place, q: Place, q_tail: Place, cache: Place, kv_lens: Place, cache_type: FloatType, num_heads: int, latent_dim: int, tail_dim: int, q_stride: int, tail_stride: int, scale: float) -> None: ...

class PagedPlaces:
    """Where a step's requests and their cache are."""

    def __init__(self, query_starts: Place, block_table: Place, slots: Place, num_blocks: int, block_tokens: int) -> None: ...

class KvNode:
    """What is written into a layer's cache."""

    def __init__(self, k: Place, v: Place, k_cache: Place, v_cache: Place, positions: Place, paged: PagedPlaces, cache_type: FloatType, num_heads: int, head_dim: int, k_stride: int, v_stride: int) -> None: ...

def sample(ids: int, logits: int, temperature: int, top_k: int, top_p: int, min_p: int, seeds: int, positions: int, num_rows: int, vocabulary: int, stride: int) -> None: ...

def probe_read(memory: int, num_bytes: int) -> None:
    """Read memory once, on all threads."""

def probe_multiply(num_pieces: int, ints: bool) -> int:
    """Multiply and add on all threads; returns how many operations."""
