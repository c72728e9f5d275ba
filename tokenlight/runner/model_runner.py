# SPDX-License-Identifier: Apache-2.0
"""A loaded model with its KV pool: executes a step plan, gives the sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from tokenlight import kernels
from tokenlight.base.clock import now_s
from tokenlight.base.log import event, get_log
from tokenlight.config import EngineConfig
from tokenlight.control import Plan
from tokenlight.kv import DevicePool
from tokenlight.models import CompiledModel
from tokenlight.runner.batch import make_step
from tokenlight.runner.logprobs import pick_logprobs, read_logprobs
from tokenlight.runner.memory import SERVING, told_when_out_of_memory
from tokenlight.runner.prompt_logprobs import PromptReader
from tokenlight.runner.ranks.leader import LeadingModel
from tokenlight.runner.ranks.others import OtherRanks, find_ranks
from tokenlight.runner.ranks.share import load_share, open_model
from tokenlight.runner.resolve import ResolvedConfig
from tokenlight.runner.sampled import Done, Launched, Sampled
from tokenlight.runner.sampler import NO_TOKENS, Sampler, num_accepted
from tokenlight.runner.staged import StagedSteps
from tokenlight.runner.timeline import Timeline
from tokenlight.runner.trial import try_step_s
from tokenlight.text.grammar.matching import Grammars, Rules
from tokenlight.text.tokenizer import Tokenizer
from tokenlight.wire import ModelFacts, SamplingParams

_log = get_log("runner")


_NO_ROWS = np.zeros(0, np.intp)


class ModelRunner:
    """Runs on one thread. A request is added before its first step and removed after its last."""

    def __init__(
        self,
        model: CompiledModel | LeadingModel,
        kv: DevicePool,
        config: ResolvedConfig,
        grammars: Grammars | None = None,
        others: OtherRanks | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        timeline = timeline or Timeline()
        self._model = model
        self._others = others
        self._kv = kv
        self.config = config
        self._sampler = Sampler(config.num_groups * config.max_num_requests, grammars)
        self._prompts = PromptReader()
        self._staged: StagedSteps | None = None
        if config.is_staged:
            assert isinstance(model, CompiledModel), "a staged step is told by its mirror"
            mirror = others.mirror() if others else None
            with timeline.during("capture"):
                self._staged = StagedSteps(model, kv, config, self._sampler, self._prompts, mirror)
        with timeline.during("first_steps"):
            self.full_step_s = try_step_s(model, kv, config.device) * config.max_step_tokens
        """Longest that a step can take, long contexts aside: no token costs more than one alone."""
        self.facts: ModelFacts

    @classmethod
    def load(cls, config: EngineConfig) -> ModelRunner:
        """Resolve the configuration, read the weights, allocate the KV pool, run a first step.

        Raises:
            ConfigError: what was asked cannot be had on this machine.
            CheckpointError: the model's files cannot be used.
        """
        started_s, timeline = now_s(), Timeline()
        checkpoint = open_model(config)
        others = find_ranks(checkpoint, config)
        share = load_share(checkpoint, config, rank=0, timeline=timeline)
        resolved = share.config
        held = {"weights": share.held_bytes, "KV": share.kv.num_bytes}
        with told_when_out_of_memory(SERVING, held):
            is_led = others is not None and not resolved.is_staged
            model = others.lead(share) if others and is_led else share.model
            grammars = Grammars(
                lambda: Tokenizer.from_checkpoint(checkpoint),
                vocab_size=checkpoint.config["vocab_size"],
            )
            runner = cls(model, share.kv, resolved, grammars, others, timeline)
        is_dummy = config.model.load_format == "dummy"
        runner.facts = ModelFacts(
            max_model_tokens=resolved.max_model_tokens,
            vocab_size=checkpoint.config["vocab_size"],
            block_tokens=resolved.block_tokens,
            num_blocks=resolved.num_groups * resolved.num_blocks,
            kv_bytes=resolved.kv_bytes,
            weights_bytes=share.held_bytes if is_dummy else checkpoint.num_bytes,
            load_s=now_s() - started_s,
        )
        _log_loaded(resolved, timeline)
        return runner

    def add(
        self,
        request_id: int,
        sampling: SamplingParams,
        prompt_token_ids: NDArray[np.int32] = NO_TOKENS,
        stop_token_ids: Sequence[int] = (),
    ) -> None:
        self._sampler.add(request_id, sampling, prompt_token_ids, stop_token_ids)
        if sampling.num_prompt_logprobs is not None:
            self._prompts.add(request_id, prompt_token_ids, sampling.num_prompt_logprobs)

    def remove(self, request_id: int) -> None:
        self._sampler.remove(request_id)
        self._prompts.remove(request_id)

    def compiling(self, sampling: SamplingParams) -> Future[Rules] | None:
        """The request's grammar, begun to be compiled; None where nothing is to be waited for."""
        return self._sampler.compiling(sampling)

    def forced(self, request_id: int) -> list[int]:
        """The tokens that must come next, one after the other: drafts that are always accepted."""
        return self._sampler.forced(request_id)

    def launch(self, plan: Plan) -> Launched:
        """Begin a step; what it gave is told in the order of the launches."""
        if self._others is not None:
            self._others.note(plan.patches)
        if self._staged is not None:
            return self._staged.launch(plan)
        return Done(self._execute_in_place(plan))

    def close(self) -> None:
        """End the other ranks, where there are any."""
        if self._others is not None:
            self._others.close()

    def execute(self, plan: Plan) -> Sampled:
        """Launch a step and wait for it."""
        return self.launch(plan).wait()

    @torch.inference_mode()
    def _execute_in_place(self, plan: Plan) -> Sampled:
        """Forward, then sample; rows whose logits are not finite are told apart."""
        step, bad_requests = make_step(plan, self._kv), list[int]()
        if chunks := self._prompts.chunks(plan):
            x_TD = self._model.hidden(step)
            bad_requests = self._prompts.read(chunks, partial(self._model.logits, x_TD))
            logits_SV = self._model.logits(x_TD, step.sampled_rows)
        else:
            logits_SV = self._model(step)
        if plan.num_sampled == 0:
            return Sampled(NO_TOKENS, _NO_ROWS, bad_requests=bad_requests)
        sums_S = logits_SV.sum(1).numpy()  # one infinity or NaN in a row makes its sum one
        wanted = self._sampler.num_logprobs(plan)
        logprobs = read_logprobs(logits_SV, wanted)
        token_ids = self._sampler.sample(plan, logits_SV).numpy()
        told = pick_logprobs(logprobs, wanted, token_ids)
        return Sampled(
            token_ids,
            np.flatnonzero(~np.isfinite(sums_S)),
            told,
            bad_requests,
            self._prompts.take(plan),
            num_accepted(plan, token_ids),
        )


def _log_loaded(config: ResolvedConfig, timeline: Timeline) -> None:
    _log.info(
        event(
            "model_loaded",
            device=config.device,
            num_threads=config.num_threads,
            kv_dtype=config.kv_dtype,
        )
    )
    costs = kernels.compile_costs() if config.device == "cuda" else {}
    _log.info(event("ready", **timeline.fields(), **costs))
