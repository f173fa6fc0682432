"""Losses of detection in every backend, forward and gradient, against PyTorch's own functions in float64."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.frameworks import reference
from deep500.networks import Network
from deep500.networks.box_losses import add_detection_loss, focal_loss, giou_loss
from deep500.networks.emit import Emitter
from deep500.tasks.boxes import LONGEST, VARIANCES, anchor_grid, encode, match
from tests.tolerances import as_numpy, assert_close

ANCHORS = np.concatenate([anchor_grid((16, 16), 8, [6.0, 10.0]), anchor_grid((16, 16), 16, [14.0])])
CLASSES, BATCH = 3, 2


def detector(dtype="float64"):
    """A network whose output is a parameter: its gradient is that of the loss."""
    rng = np.random.default_rng(0)
    value = rng.normal(0, 1.5, (BATCH, len(ANCHORS), 4 + CLASSES)).astype(dtype)
    value[0, 0, 4] = 60.0  # where a careless formula overflows
    net = Network("detector")
    net.add_input("shift", (1,), dtype)
    net.add_parameter("raw", value)
    net.add_node("Add", ["raw", "shift"], ["output"])
    net.add_output("output")
    return net, value


def targets(box_loss):
    """Of one picture with two objects, and of one without."""
    boxes = np.array([[1, 2, 7, 8.5], [3, 1, 15, 15]], np.float64)
    (found,) = match(boxes[None], np.ones((1, 2), bool), ANCHORS)
    label = np.stack([np.where(found >= 0, np.array([2, 0])[found], found), np.full(len(ANCHORS), -1)])
    label[0, 5] = -2  # not judged
    box = np.tile(ANCHORS.astype(np.float64), (BATCH, 1, 1))
    box[0][found >= 0] = boxes[found[found >= 0]]
    return label, box if box_loss == "giou" else encode(box, ANCHORS).astype(np.float64)


def torch_loss(value, label, box, box_loss, alpha=0.25, gamma=2.0):
    """The definition, written with torch's functions: what torchvision's detectors compute."""
    import torch
    import torch.nn.functional as F

    raw = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    offsets, logits = raw[..., :4], raw[..., 4:]
    wanted = F.one_hot(torch.tensor(np.maximum(label, 0)), CLASSES) * torch.tensor(label >= 0)[..., None]
    wanted = wanted.double()
    entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    p = torch.sigmoid(logits)
    p_t = p * wanted + (1 - p) * (1 - wanted)
    focal = (alpha * wanted + (1 - alpha) * (1 - wanted)) * (1 - p_t) ** gamma * entropy
    total = focal[torch.tensor(label > -2)].sum()
    there = torch.tensor(label >= 0)
    if box_loss == "smooth_l1":
        total = total + F.smooth_l1_loss(offsets[there], torch.tensor(box)[there], reduction="sum", beta=1 / 9)
    else:
        middle, extent = (
            torch.tensor(part, dtype=torch.float64)
            for part in ((ANCHORS[:, :2] + ANCHORS[:, 2:]) / 2, ANCHORS[:, 2:] - ANCHORS[:, :2])
        )
        scaled = offsets * torch.tensor(VARIANCES, dtype=torch.float64)
        centre, half = middle + scaled[..., :2] * extent, extent * torch.exp(scaled[..., 2:].clamp(max=LONGEST)) / 2
        a, b = torch.cat([centre - half, centre + half], -1)[there], torch.tensor(box)[there]
        low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
        inner = (high - low).clamp(min=0).prod(-1)
        union = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - inner
        hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1)
        total = total + (1 - inner / (union + 1e-7) + (hull - union) / (hull + 1e-7)).sum()
    loss = total / there.sum(1).clamp(min=1).sum()
    loss.backward()
    return loss.item(), raw.grad.numpy()


def test_alpha_and_gamma_reach_the_focal_loss():
    label, box = targets("smooth_l1")
    for focal in ({"gamma": 0.0}, {"alpha": 0.9}, {"alpha": 0.1, "gamma": 3.0}):
        net, value = detector("float64")
        executor = reference.from_model(add_detection_loss(net, ANCHORS, **focal))
        feeds = {"shift": np.zeros(1), "anchor_label": label, "anchor_box": box.astype("float64")}
        want, _ = torch_loss(value, label, box, "smooth_l1", **focal)
        assert float(executor.inference(feeds)["loss"]) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("box_loss", ["smooth_l1", "giou"])
def test_loss_and_gradient(backend_name, backend, box_loss):
    dtype = "float32" if backend_name == "jax" else "float64"
    net, value = detector(dtype)
    label, box = targets(box_loss)
    executor = backend.from_model(add_detection_loss(net, ANCHORS, box_loss=box_loss), "cpu")
    feeds = {"shift": np.zeros(1, dtype), "anchor_label": label, "anchor_box": box.astype(dtype)}
    loss = executor.inference_and_backprop(feeds, "loss")["loss"]
    (gradient,) = executor.network.fetch_tensors(["raw.grad"])
    wanted, wanted_gradient = torch_loss(value, label, box, box_loss)
    assert_close(as_numpy(loss).astype(dtype), np.asarray(wanted, dtype), "forward", box_loss)
    assert_close(as_numpy(gradient), wanted_gradient.astype(dtype), "gradient", box_loss)
    assert np.abs(wanted_gradient[0]).max() > 0.01


def test_no_object_at_all_is_a_loss_of_background(backend):
    net, value = detector("float32")
    label, box = np.full((BATCH, len(ANCHORS)), -1), np.zeros((BATCH, len(ANCHORS), 4), np.float32)
    executor = backend.from_model(add_detection_loss(net, ANCHORS), "cpu")
    feeds = {"shift": np.zeros(1, np.float32), "anchor_label": label, "anchor_box": box}
    loss = float(as_numpy(executor.inference_and_backprop(feeds, "loss")["loss"]))
    assert loss == pytest.approx(torch_loss(value, label, box, "smooth_l1")[0], rel=1e-4) and loss > 1


def single(emit, *shapes):
    net = Network("single")
    names = [f"x{number}" for number in range(len(shapes))]
    for name, shape in zip(names, shapes, strict=True):
        net.add_input(name, shape, "float64")
    net.add_output(emit(Emitter(net), *names))
    return net


@pytest.mark.parametrize(("alpha", "gamma"), [(0.25, 2.0), (-1.0, 0.0), (0.6, 1.5)])
def test_focal_loss_is_its_formula(alpha, gamma):
    from tests.networks.evaluate import evaluate

    net = single(lambda op, x, t: focal_loss(op, x, t, alpha, gamma, "float64"), (5,), (5,))
    x, t = np.array([-3.0, -0.1, 0.0, 2.0, 700.0]), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    (got,) = evaluate(net, {"x0": x, "x1": t}, net.outputs)
    log_p = -np.logaddexp(0, np.where(t == 1, -x, x))
    weight = np.where(t == 1, alpha, 1 - alpha) if alpha >= 0 else 1.0
    assert_close(got, -weight * (1 - np.exp(log_p)) ** gamma * log_p, "forward")


def test_generalised_intersection_over_union_of_known_boxes():
    from tests.networks.evaluate import evaluate

    net = single(lambda op, a, b: giou_loss(op, a, b, "float64"), (3, 4), (3, 4))
    a = np.array([[0, 0, 2, 2], [0, 0, 1, 1], [0, 0, 2, 2]], np.float64)
    b = np.array([[0, 0, 2, 2], [2, 0, 3, 1], [1, 0, 3, 2]], np.float64)
    (got,) = evaluate(net, {"x0": a, "x1": b}, net.outputs)
    np.testing.assert_allclose(got, [0, 1 + 1 / 3, 1 - 2 / 6], atol=1e-6)


def test_what_does_not_fit_is_refused():
    net, _ = detector()
    with pytest.raises(NetworkError, match="expected one of"):
        add_detection_loss(net, ANCHORS, box_loss="l3")
    with pytest.raises(NetworkError, match=r"expected \(N, 4, 4 \+ classes\)"):
        add_detection_loss(net, ANCHORS[:4])
    assert net.outputs == ["output"]
