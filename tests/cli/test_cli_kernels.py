# SPDX-License-Identifier: Apache-2.0
"""`tokenlight kernels` prints what is chosen for each op, and why not the others."""

import sys

import pytest

from tokenlight import kernels
from tokenlight.cli import EXIT_USAGE, main
from tokenlight.kernels.ops import OPS


def test_every_op_is_listed_below_the_machine(capsys):
    assert main(["kernels", "--device", "cpu"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("cpu: ")
    assert {line.partition("[")[0] for line in rest} == set(OPS)


def test_one_op_as_the_kernels_explain_it(capsys):
    assert main(["kernels", "--op", "rms_norm"]) == 0
    assert capsys.readouterr().out.splitlines() == kernels.explain(op="rms_norm")


def test_nothing_is_measured_that_cannot_be_kept(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOKENLIGHT_CACHE", str(tmp_path / "file" / "cache"))
    explaining = sys.modules[kernels.explain.__module__]  # the room's `explain` is its function
    monkeypatch.setattr(explaining, "tune", lambda *_: pytest.fail("measured"))
    assert main(["kernels", "tune", "--op", "rms_norm", "--device", "cpu"]) == EXIT_USAGE
    assert "cannot be kept in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--op", "linaer"], "there is no op 'linaer'; the ops are "),
        (["--device", "tpu"], "--device"),
        (["tuna"], "can list or tune, not 'tuna'"),
        (["tune", "--op", "linaer"], "there is no op 'linaer'; the ops are "),
        (["--ops", "linear"], "unknown flag --ops (did you mean --op?)"),
    ],
)
def test_mistakes_are_wrong_usage(argv, message, capsys):
    assert main(["kernels", *argv]) == EXIT_USAGE
    assert message in capsys.readouterr().err
