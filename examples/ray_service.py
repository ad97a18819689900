"""A service on Ray Serve that names the types of files, with a replica on each GPU or machine.

    pip install 'webnn_vk[ray]'
    pip install --no-deps magika==1.0.3     # the network's weights
    serve run webnn_vk.examples.ray_service:app
    curl localhost:8000 --data-binary @README.md
"""

from __future__ import annotations

import json
from typing import Any

from ray import serve

from webnn_vk.distributed.serve import ModelServer

from .file_types import CONFIG, MODEL, features


class FileTypeServer(ModelServer):
    """A replica. As any ``ModelServer`` it collects requests by ``@serve.batch``, and its health
    check notices a lost device, whereupon Serve starts another replica. Only what comes before and
    after the network is written here."""

    def __init__(self, device: str | None = None) -> None:
        super().__init__(MODEL.path(), device=device, max_batch_size=16)
        self.config = json.loads(CONFIG.path().read_text(encoding="utf-8"))

    async def __call__(self, request: Any) -> dict[str, Any]:
        """The type of the request's body, and the network's score for it, 0 to 1."""
        made = await self.predict({"bytes": features(await request.body(), self.config)})
        (scores,) = made.values()
        label = self.config["target_labels_space"][scores.argmax()]
        label = self.config["overwrite_map"].get(label, label)
        return {"type": label, "score": float(scores.max())}


#: Two replicas; ``ray_actor_options={"num_gpus": 1}`` gives each a GPU.
Deployment = serve.deployment(
    num_replicas=2, ray_actor_options={"num_cpus": 0.5}, health_check_period_s=5,
)(FileTypeServer)
app = Deployment.bind()
