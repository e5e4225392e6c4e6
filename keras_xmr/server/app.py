"""Puts the application together."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from keras_xmr.server import page, routes
from keras_xmr.server.errors import add_error_handlers
from keras_xmr.server.middleware import RequestGuard
from keras_xmr.server.service import Service

# Newer versions of FastAPI would send requests where variables of the environment say; older ones
# ignore this.
_NO_TELEMETRY: Any = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)


def create_app(service: Service) -> FastAPI:
    """The application of a service.

    FastAPI's own pages of documentation load scripts from elsewhere, so there are none;
    `/openapi.json` describes the requests.

    Args:
        service: What it asks.
    """
    app = FastAPI(title="keras_xmr", docs_url=None, redoc_url=None, telemetry=_NO_TELEMETRY)
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(page.router)
    add_error_handlers(app)
    app.add_middleware(RequestGuard, service=service)
    return app
