"""Images: classification, segmentation, detection; torchvision and timm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.models.architectures.architecture import Architecture, images, import_torchvision


def from_torchvision(name: str, group: str = "", **options: Any) -> Callable[[], Any]:
    """A builder of one of torchvision's models, with random weights."""

    def build() -> Any:
        import_torchvision()
        from torchvision import models

        return getattr(getattr(models, group) if group else models, name)(weights=None, **options)

    return build


def from_timm(name: str, **options: Any) -> Callable[[], Any]:
    """A builder of one of timm's models, with random weights."""

    def build() -> Any:
        import_torchvision()  # timm imports it
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return build


def _deeplab() -> Any:
    from torch import nn

    model = from_torchvision(
        "deeplabv3_mobilenet_v3_large", "segmentation", weights_backbone=None, num_classes=5, aux_loss=False
    )()

    class Maps(nn.Module):
        """The map of classes, without the dictionary around it."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: Any) -> Any:
            return self.model(images)["out"]

    return Maps()


def _detector() -> Any:
    import torch
    from torch import nn

    import_torchvision()
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    options = {"weights": None, "weights_backbone": None, "num_classes": 4}
    model = ssdlite320_mobilenet_v3_large(**options, topk_candidates=20, detections_per_img=10, score_thresh=0.01)
    with torch.no_grad():
        for name, parameter in model.head.named_parameters():
            if name.endswith("weight") and parameter.ndim == 4:
                parameter.mul_(5)  # scores that differ by more than rounding, so that their order is the model's

    class Boxes(nn.Module):
        """Boxes, scores and labels of two images."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: Any) -> tuple[Any, ...]:
            found = self.model([images[0], images[1]])
            return tuple(one[kind] for one in found for kind in ("boxes", "scores", "labels"))

    return Boxes()


def _mixer() -> Any:
    import_torchvision()
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(img_size=96, patch_size=16, num_blocks=3, embed_dim=64, num_classes=10)


def _densenet() -> Any:
    import_torchvision()
    from torchvision.models import DenseNet

    return DenseNet(growth_rate=12, block_config=(3, 4, 4), num_init_features=16, num_classes=10)


VISION = (
    Architecture("resnet18", "torchvision", "convolutions, batch norm", from_torchvision("resnet18"), images(64)),
    Architecture(
        "mobilenet_v3_small",
        "torchvision",
        "squeeze and excitation, hard swish",
        from_torchvision("mobilenet_v3_small", dropout=0.0),
        images(96),
    ),
    Architecture(
        "efficientnet_b0",
        "torchvision",
        "depthwise convolutions, SiLU",
        from_torchvision("efficientnet_b0", dropout=0.0, stochastic_depth_prob=0.0),
        images(64),
    ),
    Architecture(
        "shufflenet_v2_x0_5", "torchvision", "channel shuffles", from_torchvision("shufflenet_v2_x0_5"), images(96)
    ),
    Architecture("densenet", "torchvision", "concatenations", _densenet, images(64)),
    Architecture("deeplabv3", "torchvision", "segmentation, dilated convolutions, resizing", _deeplab, images(96, 2)),
    Architecture(
        "ssdlite", "torchvision", "detection with non-maximum suppression", _detector, images(320, 2), ragged=True
    ),
    Architecture(
        "mobilenetv4", "timm", "inverted bottlenecks", from_timm("mobilenetv4_conv_small"), images(64), "dynamo", False
    ),
    Architecture(
        "convnext_atto",
        "timm",
        "7 x 7 depthwise, layer norm",
        from_timm("convnext_atto", depths=(1, 1, 2, 1)),
        images(64),
        "dynamo",
    ),
    Architecture(
        "swin",
        "timm",
        "attention in shifted windows",
        from_timm("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 2), num_heads=(2, 4), embed_dim=32),
        images(56, 2),
        "dynamo",
        False,
    ),
    Architecture(
        "eva02",
        "timm",
        "rotary attention, SwiGLU",
        from_timm("eva02_tiny_patch14_224", img_size=56, depth=2),
        images(56),
        "dynamo",
        False,
    ),
    Architecture(
        "vit", "timm", "attention on patches", from_timm("vit_tiny_patch16_224", img_size=64, depth=3), images(64)
    ),
    Architecture("mixer", "timm", "dense layers across patches", _mixer, images(96)),
    Architecture(
        "levit",
        "timm",
        "attention and convolutions, attention biases",
        from_timm("levit_128s", img_size=64),
        images(64),
        "dynamo",
        False,
    ),
)
