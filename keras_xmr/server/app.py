"""The application."""

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
    """Creates the application of a service.

    The pages of documentation of FastAPI are off, since they load scripts from elsewhere;
    `/openapi.json` describes the requests.

    Args:
        service: The service of its routes.
    """
    app = FastAPI(title="keras_xmr", docs_url=None, redoc_url=None, telemetry=_NO_TELEMETRY)
    app.state.service = service
    app.include_router(routes.router)
    app.include_router(page.router)
    add_error_handlers(app)
    app.add_middleware(RequestGuard, service=service)
    return app
