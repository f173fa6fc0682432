"""Augmentations against one-sample-at-a-time loops, Pillow and closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deep500.errors import InputError
from deep500.training.data.augmentation import Crop, Cutout, Flip, ImageTransform, Normalize, RandomFlip, Resize, resize
from tests.tolerances import assert_close

SHAPE = (12, 3, 9, 7)  # not square: a transposed image cannot pass


@pytest.fixture
def images():
    return np.random.default_rng(1).random(SHAPE, dtype=np.float32)


def run(transform, images, seed=0):
    before = images.copy()
    batch = {"input": images, "label": np.arange(len(images))}
    got = transform(batch, np.random.default_rng(seed))
    np.testing.assert_array_equal(images, before, err_msg="the input batch was written to")
    assert batch["input"] is images and got["label"] is batch["label"]
    assert got["input"].flags["C_CONTIGUOUS"] and got["input"].dtype == images.dtype
    again = transform(batch, np.random.default_rng(seed))
    np.testing.assert_array_equal(got["input"], again["input"], err_msg="not a function of the generator")
    return got["input"]


@pytest.mark.parametrize(("size", "padding", "fill"), [((9, 7), 2, 0), (5, 0, 0), ((4, 7), 1, 0.5), ((9, 7), 0, 0)])
def test_random_crop_cuts_each_image_at_its_own_place(images, size, padding, fill):
    got = run(Crop(size, padding, fill=fill), images)
    height, width = size if isinstance(size, tuple) else (size, size)
    rng = np.random.default_rng(0)
    tops = rng.integers(0, SHAPE[2] + 2 * padding - height + 1, SHAPE[0])
    lefts = rng.integers(0, SHAPE[3] + 2 * padding - width + 1, SHAPE[0])
    for image, crop, top, left in zip(images, got, tops, lefts, strict=True):
        frame = np.full((3, SHAPE[2] + 2 * padding, SHAPE[3] + 2 * padding), fill, np.float32)
        frame[:, padding : padding + SHAPE[2], padding : padding + SHAPE[3]] = image
        np.testing.assert_array_equal(crop, frame[:, top : top + height, left : left + width])
    if tops.max():
        assert len({(a, b) for a, b in zip(tops, lefts, strict=True)}) > 1


def test_random_crop_reaches_every_position_equally_often():
    images = np.arange(6, dtype=np.float64).reshape(1, 1, 2, 3).repeat(6000, 0)
    got = run(Crop(1), images).ravel().astype(int)
    np.testing.assert_allclose(np.bincount(got, minlength=6), 1000, atol=4 * np.sqrt(6000 / 6 * 5 / 6))


def test_centre_crop(images):
    np.testing.assert_array_equal(run(Crop((5, 3), random=False), images), images[:, :, 2:7, 2:5])
    np.testing.assert_array_equal(run(Crop((11, 9), 1, random=False), images)[:, :, 1:-1, 1:-1], images)


@pytest.mark.parametrize("axis", [-1, -2])
def test_flip_mirrors_a_part_of_the_images(images, axis):
    got = run(Flip(axis), images)
    mirrored = [np.array_equal(result, np.flip(image, axis)) for image, result in zip(images, got, strict=True)]
    same = [np.array_equal(result, image) for image, result in zip(images, got, strict=True)]
    assert any(mirrored) and any(same) and all(a != b for a, b in zip(mirrored, same, strict=True))
    np.testing.assert_array_equal(run(Flip(axis, p=1), images), np.flip(images, axis))
    np.testing.assert_array_equal(run(Flip(axis, p=0), images), images)
    first = Image.fromarray(images[0, 0])
    way = Image.Transpose.FLIP_LEFT_RIGHT if axis == -1 else Image.Transpose.FLIP_TOP_BOTTOM
    np.testing.assert_array_equal(run(Flip(axis, p=1), images)[0, 0], np.asarray(first.transpose(way)))


def test_flip_heeds_its_probability():
    images = np.tile(np.array([0.0, 1.0]), (4000, 1, 1, 1))
    share = run(RandomFlip(p=0.2), images)[:, 0, 0, 0].mean()
    assert abs(share - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 4000)


@pytest.mark.parametrize(("length", "holes"), [(4, 1), (3, 2), (1, 1), (50, 1)])
def test_cutout_blanks_squares(images, length, holes):
    images = images + 1  # no zeros of its own
    got = run(Cutout(length, holes), images)
    rng = np.random.default_rng(0)
    want = images.copy()
    for _ in range(holes):
        rows, columns = rng.integers(0, SHAPE[2], (SHAPE[0], 1)), rng.integers(0, SHAPE[3], (SHAPE[0], 1))
        for image, row, column in zip(want, rows.ravel(), columns.ravel(), strict=True):
            top, left = row - length // 2, column - length // 2
            image[:, max(top, 0) : max(top + length, 0), max(left, 0) : max(left + length, 0)] = 0
    np.testing.assert_array_equal(got, want)
    assert (got == 0).any(axis=(1, 2, 3)).all() and ((got == 0).sum(axis=(1, 2, 3)) <= 3 * holes * length**2).all()


def test_normalize_per_channel_gives_mean_0_and_deviation_1(images):
    mean, std = images.mean(axis=(0, 2, 3)), images.std(axis=(0, 2, 3))
    got = run(Normalize(mean.tolist(), std.tolist()), images)
    assert_close(got, _normal(images, mean, std))
    assert_close(got.mean(axis=(0, 2, 3), dtype=np.float64), np.zeros(3), dtype=np.float32)
    assert_close(got.std(axis=(0, 2, 3), dtype=np.float64), np.ones(3), dtype=np.float32)
    assert_close(run(Normalize(0.5, 2), images), (images - 0.5) / 2)


def _normal(images, mean, std):
    return np.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], axis=1)


@pytest.mark.parametrize("size", [(18, 14), (4, 3), (20, 3), (9, 7), 5, (1, 1), (13, 6)])
def test_resize_equals_pillow(images, size):
    height, width = size if isinstance(size, tuple) else (size, size)
    got = run(Resize(size), images)
    want = [
        [np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR)) for plane in image]
        for image in images
    ]
    assert_close(got, np.array(want))


def test_resize_keeps_constants_and_dtype():
    assert_close(resize(np.full((2, 5, 5), 3.0), (8, 2)), np.full((2, 8, 2), 3.0))
    assert resize(np.zeros((4, 4), np.uint8), 2).dtype == np.float32


BAD = [
    (Crop(8), SHAPE, "expected at least 8x8"),
    (Flip(), (3, 4), "expected .samples, channels"),
    (Normalize([1, 2], 1), SHAPE, "2 values as mean for 3 channels"),
    (Flip(key="inptu"), SHAPE, "got no entry 'inptu'.*did you mean 'input'"),
]


@pytest.mark.parametrize(("transform", "shape", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_batches(transform, shape, message):
    with pytest.raises(InputError, match=message):
        transform({"input": np.zeros(shape)}, np.random.default_rng(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Crop(0),
        lambda: Crop(2.5),
        lambda: Crop((1, 2, 3)),
        lambda: Crop(4, padding=-1),
        lambda: Flip(0),
        lambda: Flip(p=1.5),
        lambda: Cutout(0),
        lambda: Cutout(holes=0),
        lambda: Normalize(0, 0),
        lambda: Resize("8"),
    ],
)
def test_bad_arguments_say_got_and_expected(make):
    with pytest.raises(InputError, match=r"got .*; expected"):
        make()


@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    pad=st.integers(0, 5),
    share=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
    random=st.booleans(),
    seed=st.integers(0, 99),
)
def test_crops_are_windows_of_the_padded_images(rows, columns, pad, share, random, seed):
    """Padded as a whole and gathered, with the same random numbers; also where a window sees padding alone."""
    height, width = (max(1, int(part * (n + 2 * pad))) for part, n in zip(share, (rows, columns), strict=True))
    images = np.random.default_rng(seed).integers(0, 256, (3, 2, rows, columns), dtype=np.uint8)
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=7)
    spare, rng = (rows + 2 * pad - height, columns + 2 * pad - width), np.random.default_rng(seed)
    places = [rng.integers(0, extra + 1, 3) if random else np.full(3, extra // 2) for extra in spare]
    expected = [x[:, t : t + height, le : le + width] for x, t, le in zip(padded, *places, strict=True)]
    cut = Crop((height, width), pad, random, fill=7).apply(images, np.random.default_rng(seed))
    np.testing.assert_array_equal(cut, np.stack(expected))


@given(
    seed=st.integers(0, 2**32),
    extent=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    kind=st.sampled_from(["crop", "padded crop", "across", "down", "both"]),
)
def test_boxes_and_label_maps_follow_the_picture(seed: int, extent: tuple[int, int], kind: str) -> None:
    """The oracle: every object has a colour of its own, and its box is what has this colour."""
    rng = np.random.default_rng(seed)
    (height, width), count, most = extent, 4, 2
    pictures, boxes = np.zeros((count, 1, *extent), "float32"), np.zeros((count, most, 4), "float32")
    labels = np.full((count, most), -1)
    for number in range(count):
        for place in range(rng.integers(0, most + 1)):
            middle = width // 2
            x1, y1 = rng.integers(0, middle) + place * middle, rng.integers(0, height)
            x2, y2 = rng.integers(x1 + 1, middle * (place + 1) + 1), rng.integers(y1 + 1, height + 1)
            pictures[number, :, y1:y2, x1:x2] = place + 1
            boxes[number, place], labels[number, place] = (x1, y1, x2, y2), place + 1
    batch = {"input": pictures, "label": pictures[:, 0].astype(int), "boxes": boxes, "box_label": labels}
    batch["label"][batch["label"] == 0] = 9
    size = (max(height - 2, 1), max(width - 1, 1))
    transforms = {
        "crop": [Crop(size)],
        "padded crop": [Crop(extent, padding=2, label_fill=9)],
        "across": [Flip()],
        "down": [Flip(axis=2)],
        "both": [Flip(axis=3), Crop(size, random=False), Flip(-2, p=1)],
    }[kind]
    before = {name: array.copy() for name, array in batch.items()}
    moved = batch
    for transform in transforms:
        moved = transform(moved, rng)
    assert all(np.array_equal(batch[name], array) for name, array in before.items()), "the input was written to"
    np.testing.assert_array_equal(np.where(moved["label"] == 9, 0, moved["label"]), moved["input"][:, 0])
    for number in range(count):
        for place in range(most):
            rows, columns = np.nonzero(moved["input"][number, 0] == place + 1)
            if not len(rows):
                assert moved["box_label"][number, place] == -1 and not moved["boxes"][number, place].any()
                continue
            expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            assert moved["boxes"][number, place].tolist() == expected
            assert moved["box_label"][number, place] == place + 1


def test_resized_boxes_and_label_maps_are_where_the_picture_is() -> None:
    picture = np.zeros((1, 1, 6, 8), "float32")
    picture[0, 0, 2:4, 4:8] = 1
    boxes = np.array([[[4, 2, 8, 4]]], "float32")
    batch = {"input": picture, "label": picture[:, 0].astype(int), "boxes": boxes, "box_label": np.array([[3]])}
    moved = Resize((12, 4))(batch, np.random.default_rng(0))
    assert moved["boxes"].tolist() == [[[2, 4, 4, 8]]] and moved["boxes"].dtype == np.float32
    expected = np.zeros((1, 12, 4), int)
    expected[0, 4:8, 2:4] = 1
    np.testing.assert_array_equal(moved["label"], expected)


def test_labels_that_cannot_follow_are_refused() -> None:
    maps = {"input": np.zeros((2, 1, 4, 4)), "label": np.zeros((2, 4, 4), int)}
    with pytest.raises(InputError, match=r"got padding=1 and labels of shape \(2, 4, 4\).*label_fill"):
        Crop(4, padding=1)(maps, np.random.default_rng(0))

    class Halves(ImageTransform):
        def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            return images[..., ::2, ::2]

    with pytest.raises(InputError, match=r"Halves: .*with boxes; expected boxes that follow"):
        Halves()({"input": np.zeros((1, 1, 4, 4)), "boxes": np.zeros((1, 1, 4))}, np.random.default_rng(0))
