"""Which version of a model answers: the one of a model_dir, or the highest of a folder."""

from typing import Protocol

from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse, ModelVersionStatus

from keras_transformer.serving.servable import Servable


class Model(Protocol):
    """A model under its name, and the version of it that answers."""

    name: str

    @property
    def current(self) -> tuple[int, Servable]:
        """The version that answers requests, and its number."""
        ...

    def status(self) -> GetModelStatusResponse:
        """The state of each version."""
        ...


class FixedModel:
    """A model of which there is one version, 1: a model_dir or an ensemble."""

    def __init__(self, name: str, servable: Servable):
        self.name = name
        self.current = 1, servable

    def status(self) -> GetModelStatusResponse:
        available = ModelVersionStatus(version=1, state=ModelVersionStatus.AVAILABLE)
        available.status.SetInParent()
        return GetModelStatusResponse(model_version_status=[available])
