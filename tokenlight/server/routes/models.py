# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models and /v1/models/{model_id}."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.models import Model, ModelList
from tokenlight.server.services import Services, services


async def list_models(request: Request) -> Response:
    svc = services(request)
    names = svc.model_names
    models = [_model(svc, name) for name in names]
    return json_response(ModelList(data=models, first_id=names[0], last_id=names[-1]))


async def get_model(request: Request) -> Response:
    svc = services(request)
    name = request.path_params["model_id"]
    svc.check_model(name)
    return json_response(_model(svc, name))


def _model(svc: Services, name: str) -> Model:
    limit_tokens = svc.engine.facts.max_model_tokens
    return Model(
        id=name,
        created=svc.started_unix_s,
        root=svc.checkpoint_name,
        max_model_len=limit_tokens,
        display_name=name,
        created_at=datetime.fromtimestamp(svc.started_unix_s, UTC).isoformat(),
        max_input_tokens=limit_tokens - 1,
        max_tokens=limit_tokens - 1,
    )


ENDPOINTS = [
    Endpoint(
        path="/v1/models",
        method="GET",
        handler=list_models,
        summary="The models that are served.",
        response=ModelList,
    ),
    Endpoint(
        # Names may have slashes: a Hub id is one.
        path="/v1/models/{model_id:path}",
        method="GET",
        handler=get_model,
        summary="One model.",
        response=Model,
    ),
]
