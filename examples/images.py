"""Images of any kind as upright RGB."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

#: The largest image taken, in pixels: what decoding it takes is bounded by this.
MOST_PIXELS = 100_000_000


class ImageError(Exception):
    """A file that can't be used as an image; the message is one line."""


def open_image(path: Path) -> Any:
    """The image in a file as an upright RGB `PIL.Image`.

    Turned as its EXIF data says; transparency is laid over white, or over black where what is to be
    seen is light; 16 bits become 8; of an animation it is the first frame. `ImageError` for what is
    no image or has more than `MOST_PIXELS` pixels.
    """
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise ImageError("pillow is missing; run: pip install 'webnn_vk[demo]'") from None
    try:
        with warnings.catch_warnings():
            # Its own bound is a warning at about this size; ours is an error.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                if file.width * file.height > MOST_PIXELS:
                    raise ImageError(
                        f"{path} has {file.width} × {file.height} pixels; at most "
                        f"{MOST_PIXELS // 1_000_000} million are read"
                    )
                file.load()
                image = ImageOps.exif_transpose(file)
    except FileNotFoundError:
        raise ImageError(f"no such file: {path}") from None
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError(f"{path} is not an image that can be read") from None
    except Image.DecompressionBombError:
        raise ImageError(
            f"{path} has too many pixels; at most {MOST_PIXELS // 1_000_000} million are read"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ImageError(f"cannot read the image {path}: {reason}") from None
    except Exception as error:  # decoders raise anything for broken files
        raise ImageError(f"cannot read the image {path}: {type(error).__name__}: {error}") from None
    return _rgb(image)


def _rgb(image: Any) -> Any:
    from PIL import Image

    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    transparent = image.mode in ("RGBA", "LA", "PA", "La", "RGBa")
    if not transparent and "transparency" not in image.info:
        return image.convert("RGB")
    image = image.convert("RGBA")
    pixels = np.asarray(image.resize((64, 64)), np.float32)
    seen = pixels[..., 3]
    light = (pixels[..., :3].mean(axis=2) * seen).sum() > 170 * seen.sum()
    mostly_clear = seen.mean() < 128
    ground = Image.new("RGBA", image.size, "black" if light and mostly_clear else "white")
    return Image.alpha_composite(ground, image).convert("RGB")


def _eight_bits(image: Any) -> Any:
    """A grey image of 16 or 32 bits or floating point: scaled by its largest value's range."""
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = min(values.min(), 0.0), values.max()
    if low == 0:
        for most in (1.0, 255.0, 65535.0):
            if high <= most:
                high = most
                break
    scaled = (values - low) * (255.0 / max(high - low, 1e-30))
    return Image.fromarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))
