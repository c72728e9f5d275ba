# SPDX-License-Identifier: Apache-2.0
"""Triton kernels run by its interpreter on the CPU: where TRITON_INTERPRET=1 is set."""

import os
import threading

import numpy as np
import torch

IS_ON = os.environ.get("TRITON_INTERPRET") == "1"
# Interpreting every case takes minutes: few of them, and few of their rows, unless all are asked.
IS_BRIEF = IS_ON and os.environ.get("TOKENLIGHT_EVERY_CASE") != "1"
# Of the cases, those with this in their name.
CASE = os.environ.get("TOKENLIGHT_CASE", "")


def mend() -> None:
    """Let the interpreter round to bfloat16, and multiply, as devices do.

    As of 3.6 it cuts float32 off, takes the bits of bfloat16 for whole numbers in a product, leaves
    the order of a product's sums to a library, and reads a loop's bounds in a way that numpy 2.5
    refuses.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    convert_float, create_dot = interpreter._convert_float, builder.create_dot
    patch_lang_tensor = interpreter._patch_lang_tensor

    floats = {
        tl.float32: torch.float32,
        tl.bfloat16: torch.bfloat16,
        tl.float16: torch.float16,
        tl.float8e4nv: torch.float8_e4m3fn,
    }

    def convert(data, source, target, rounding):
        if source not in floats or target not in floats:
            return convert_float(data, source, target, rounding)
        size = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
        given = np.ascontiguousarray(data)
        bits = torch.from_numpy(given.view(f"i{given.itemsize}" if given.itemsize > 1 else "u1"))
        rounded = bits.view(floats[source]).to(floats[target])
        out = rounded.view(size[rounded.element_size()]).numpy()
        return out.view(f"u{out.itemsize}").reshape(given.shape)

    def dot(self, a, b, d, precision, imprecise):
        if a.dtype.scalar not in floats or d.dtype.scalar != tl.float32:
            return create_dot(self, a, b, d, precision, imprecise)
        left, right = (
            x.data
            if x.dtype.scalar == tl.float32
            else convert(x.data, x.dtype.scalar, tl.float32, None).view(np.float32)
            for x in (a, b)
        )
        # A library's product may add a row in an order that depends on where it lies.
        product = np.einsum("...mk,...kn->...mn", left, right)
        return interpreter.TensorHandle(product + d.data, tl.float32)

    def patch_tensor(tensor, scope):
        patch_lang_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    launch, lock = interpreter.GridExecutor.__call__, threading.RLock()

    def launch_alone(self, *args, **kwargs):
        with lock:  # which program runs is kept once for all threads
            return launch(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = launch_alone
    interpreter._convert_float, builder.create_dot = convert, dot
    interpreter._patch_lang_tensor = patch_tensor
    # Patching the language anew for each call of each function takes a third of the time.
    interpreter._patch_lang = once(interpreter._patch_lang, interpreter._LangPatchScope)
    # A check of every integer sum for overflow doubles the time.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
        sanitize_overflow=False
    )


def once(patch_lang, scope):
    """Patch what a function's module sees at the first call of one like it, and for good."""
    patched = set()

    def patch(fn):
        seen = frozenset(name for name in fn.__globals__ if name in ("tl", "core", "math"))
        if seen not in patched:
            patched.add(seen)
            patch_lang(fn)
        return scope()

    return patch
