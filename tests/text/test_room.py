# SPDX-License-Identifier: Apache-2.0
"""The room is light: no torch, and a tokenizer long before an engine is ready."""

import subprocess
import sys
import textwrap


def run(source: str, *arguments: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_torch_is_never_imported(default_model_path):
    imported = run(
        """
        import sys
        from pathlib import Path
        from tokenlight.checkpoint import open_checkpoint
        from tokenlight.text import ChatTemplate, Detokenizer, StopStrings, Tokenizer
        checkpoint = open_checkpoint(Path(sys.argv[1]))
        tokenizer = Tokenizer.from_checkpoint(checkpoint)
        ChatTemplate.from_checkpoint(checkpoint).render([{"role": "user", "content": "hi"}])
        Detokenizer(tokenizer).push(tokenizer.encode("hi"))
        print({"torch", "transformers", "huggingface_hub"} & set(sys.modules))
        """,
        str(default_model_path),
    )
    assert imported.strip() == "set()"


def test_the_default_models_tokenizer_is_small_and_quick(default_model_path):
    cost = run(
        """
        import resource, sys, time
        from pathlib import Path
        from tokenlight.checkpoint import open_checkpoint
        from tokenlight.text import Tokenizer
        def rss_bytes():
            return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
        before_bytes, start_s = rss_bytes(), time.process_time()
        tokenizer = Tokenizer.from_checkpoint(open_checkpoint(Path(sys.argv[1])))
        print(time.process_time() - start_s, (rss_bytes() - before_bytes) / 2**20)
        """,
        str(default_model_path),
    )
    seconds, megabytes = map(float, cost.split())
    # A sixth of a second and 25 MiB on the machine where this was written.
    assert seconds < 1
    assert megabytes < 60
