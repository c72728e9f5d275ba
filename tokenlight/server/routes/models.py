# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models and /v1/models/{model_id}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.models import Model, ModelList
from tokenlight.server.services import Services, services


async def list_models(request: Request) -> Response:
    svc = services(request)
    return json_response(ModelList(data=[_model(svc, name) for name in svc.model_names]))


async def get_model(request: Request) -> Response:
    svc = services(request)
    name = request.path_params["model_id"]
    svc.check_model(name)
    return json_response(_model(svc, name))


def _model(svc: Services, name: str) -> Model:
    return Model(
        id=name,
        created=svc.started_unix_s,
        root=svc.checkpoint_name,
        max_model_len=svc.engine.facts.max_model_tokens,
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
