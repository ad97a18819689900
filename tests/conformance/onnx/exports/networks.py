"""Common architectures written in PyTorch, with random weights.

They run only in the exports' own environment; webnn_vk is never imported.
"""

import torch
from torch import nn
from torch.nn import functional as F


def conv(c_in, c_out, kernel=1, stride=1, groups=1, act=nn.ReLU):
    layers = [
        nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(c_out),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


# -- residual networks -----------------------------------------------------------------------------
class Bottleneck(nn.Module):
    def __init__(self, c_in, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv(c_in, width), conv(width, width, 3, stride), conv(width, 4 * width, act=None)
        )
        same = stride == 1 and c_in == 4 * width
        self.skip = nn.Identity() if same else conv(c_in, 4 * width, 1, stride, act=None)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        blocks, c_in = [], 64
        for index, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                width = 64 << index
                blocks.append(Bottleneck(c_in, width, 2 if block == 0 and index else 1))
                c_in = 4 * width
        self.stem = nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(c_in, 1000)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        return self.head(torch.flatten(x, 1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed, act, gate):
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), act(),
            nn.Conv2d(squeezed, channels, 1), gate(),
        )

    def forward(self, x):
        return x * self.layers(x)


class Inverted(nn.Module):
    def __init__(self, c_in, c_out, kernel, stride, wide, squeezed, act, gate):
        super().__init__()
        layers = [conv(c_in, wide, act=act)] if wide != c_in else []
        layers.append(conv(wide, wide, kernel, stride, wide, act))
        if squeezed:
            inner = nn.SiLU if act is nn.SiLU else nn.ReLU
            layers.append(SqueezeExcite(wide, squeezed, inner, gate))
        layers.append(conv(wide, c_out, act=None))
        self.layers, self.skip = nn.Sequential(*layers), stride == 1 and c_in == c_out

    def forward(self, x):
        return x + self.layers(x) if self.skip else self.layers(x)


class MobileNetV3(nn.Module):
    """The small variant: kernel, expanded, out, squeeze-excite, activation, stride."""

    ROWS = [
        (3, 16, 16, True, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 2),
        (3, 88, 24, False, nn.ReLU, 1),
        (5, 96, 40, True, nn.Hardswish, 2), (5, 240, 40, True, nn.Hardswish, 1),
        (5, 240, 40, True, nn.Hardswish, 1), (5, 120, 48, True, nn.Hardswish, 1),
        (5, 144, 48, True, nn.Hardswish, 1), (5, 288, 96, True, nn.Hardswish, 2),
        (5, 576, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1),
    ]

    def __init__(self):
        super().__init__()
        layers, c_in = [conv(3, 16, 3, 2, act=nn.Hardswish)], 16
        for kernel, wide, c_out, squeeze, act, stride in self.ROWS:
            squeezed = max(8, wide // 4 // 8 * 8) if squeeze else 0
            gate = nn.Hardsigmoid
            layers.append(Inverted(c_in, c_out, kernel, stride, wide, squeezed, act, gate))
            c_in = c_out
        self.features = nn.Sequential(*layers, conv(96, 576, act=nn.Hardswish))
        self.head = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class EfficientNetB0(nn.Module):
    ROWS = [  # expansion, kernel, stride, out, repeats
        (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
    ]

    def __init__(self):
        super().__init__()
        layers, c_in = [conv(3, 32, 3, 2, act=nn.SiLU)], 32
        for expansion, kernel, stride, c_out, repeats in self.ROWS:
            for index in range(repeats):
                layers.append(
                    Inverted(
                        c_in, c_out, kernel, stride if index == 0 else 1, c_in * expansion,
                        max(1, c_in // 4), nn.SiLU, nn.Sigmoid,
                    )
                )
                c_in = c_out
        self.features = nn.Sequential(*layers, conv(320, 1280, act=nn.SiLU))
        self.head = nn.Linear(1280, 1000)

    def forward(self, x):
        return self.head(F.dropout(self.features(x).mean((2, 3)), 0.2, self.training))


class ConvNeXt(nn.Module):
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, eps=1e-6)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 0.1))

        def forward(self, x):
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.scale * self.narrow(F.gelu(self.wide(y)))
            return x + y.permute(0, 3, 1, 2)

    class Norm(nn.LayerNorm):
        def forward(self, x):
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def __init__(self, widths=(48, 96, 192, 384), depths=(2, 2, 4, 2)):
        super().__init__()
        layers = [nn.Conv2d(3, widths[0], 4, 4), self.Norm(widths[0], eps=1e-6)]
        for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if index:
                layers += [self.Norm(widths[index - 1]), nn.Conv2d(widths[index - 1], width, 2, 2)]
            layers += [self.Block(width) for _ in range(depth)]
        self.features, self.norm = nn.Sequential(*layers), nn.LayerNorm(widths[-1])
        self.head = nn.Linear(widths[-1], 1000)

    def forward(self, x):
        return self.head(self.norm(self.features(x).mean((-2, -1))))


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        c_in, self.down, self.up, self.join = 3, nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for width in widths:
            self.down.append(nn.Sequential(conv(c_in, width, 3), conv(width, width, 3)))
            c_in = width
        for width in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(c_in, width, 2, 2))
            self.join.append(nn.Sequential(conv(2 * width, width, 3), conv(width, width, 3)))
            c_in = width
        self.head = nn.Conv2d(c_in, 5, 1)

    def forward(self, x):
        kept = []
        for index, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if index else x)
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(x).softmax(1)


class Yolo(nn.Module):
    """Three scales, a top-down and a bottom-up path, boxes from distributions, decoded in the
    graph."""

    CLASSES, BINS, STRIDES = 12, 8, (8, 16, 32)

    class Split(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.last = conv(width, width, act=nn.SiLU), conv(3 * width // 2, width)
            self.body = nn.Sequential(
                conv(width // 2, width // 2, 3, act=nn.SiLU), conv(width // 2, width // 2, 3)
            )

        def forward(self, x):
            a, b = self.first(x).chunk(2, 1)
            return self.last(torch.cat([a, b, b + self.body(b)], 1))

    def __init__(self, width=16):
        super().__init__()
        w = [width, 2 * width, 4 * width]
        self.stem = nn.Sequential(conv(3, width, 3, 2, act=nn.SiLU), conv(width, width, 3, 2))
        self.down = nn.ModuleList(
            nn.Sequential(conv(a, b, 3, 2, act=nn.SiLU), self.Split(b))
            for a, b in zip([width, *w], w, strict=False)
        )
        self.pool = conv(4 * w[2], w[2], act=nn.SiLU)
        self.merge = nn.ModuleList(conv(w[i + 1] + w[i], w[i], act=nn.SiLU) for i in (1, 0))
        self.heads = nn.ModuleList(nn.Conv2d(c, 4 * self.BINS + self.CLASSES, 1) for c in w)
        self.register_buffer("bins", torch.arange(self.BINS, dtype=torch.float32))

    def forward(self, x):
        levels, x = [], self.stem(x)
        for block in self.down:
            x = block(x)
            levels.append(x)
        pooled = [levels[-1]]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        levels[-1] = self.pool(torch.cat(pooled, 1))
        for merge, index in zip(self.merge, (1, 0), strict=True):
            up = F.interpolate(levels[index + 1], scale_factor=2, mode="nearest")
            levels[index] = merge(torch.cat([up, levels[index]], 1))
        found = []
        for level, head, stride in zip(levels, self.heads, self.STRIDES, strict=True):
            y = head(level)
            n, _, h, w = y.shape
            grid_y, grid_x = torch.meshgrid(
                torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij"
            )
            centres = torch.stack([grid_x, grid_y], 0).reshape(1, 2, -1).to(y.dtype) + 0.5
            y = y.reshape(n, 4 * self.BINS + self.CLASSES, h * w)
            sides, classes = y.split([4 * self.BINS, self.CLASSES], 1)
            sides = sides.reshape(n, 4, self.BINS, h * w).softmax(2)
            sides = (sides * self.bins.to(y.dtype).reshape(1, 1, -1, 1)).sum(2)
            before, after = sides.chunk(2, 1)
            low, high = centres - before, centres + after
            boxes = torch.cat([(low + high) / 2, high - low], 1) * stride
            found.append(torch.cat([boxes, classes.sigmoid()], 1))
        return torch.cat(found, 2)


# -- transformers ----------------------------------------------------------------------------------
class Attention(nn.Module):
    def __init__(self, width, heads, fused=True):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None, past=None, causal=False):
        n, length, width = x.shape
        q, k, v = self.qkv(x).reshape(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        else:
            scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
            if mask is not None:
                scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            y = scores.softmax(-1) @ v
        y = self.out(y.transpose(1, 2).reshape(n, length, width))
        return y, torch.stack([k, v])


class Layer(nn.Module):
    def __init__(self, width, heads, first_norm=True, fused=True, act="none"):
        super().__init__()
        self.attention, self.first_norm, self.act = Attention(width, heads, fused), first_norm, act
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def mix(self, x):
        return self.narrow(F.gelu(self.wide(x), approximate=self.act))

    def forward(self, x, mask=None, past=None, causal=False):
        if self.first_norm:
            y, kept = self.attention(self.norm1(x), mask, past, causal)
            x = x + y
            return x + self.mix(self.norm2(x)), kept
        y, kept = self.attention(x, mask, past, causal)
        x = self.norm1(x + y)
        return self.norm2(x + self.mix(x)), kept


class ViT(nn.Module):
    def __init__(self, size=64, patch=16, width=96, depth=3, heads=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x)[:, 0])


class Bert(nn.Module):
    def __init__(self, words=300, places=64, width=64, depth=2, heads=4):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.types, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, False, False) for _ in range(depth))
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids, attention_mask, token_type_ids):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.words(input_ids) + self.places(places) + self.types(token_type_ids)
        x, mask = self.norm(x), attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            x, _ = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class GptStep(nn.Module):
    """Some tokens after a cache: the next token's scores, and the cache including them."""

    def __init__(self, words=200, places=64, width=64, depth=2, heads=4):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.layers = nn.ModuleList(Layer(width, heads, act="tanh") for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids, past):
        before, length = past.shape[4], input_ids.shape[1]
        places = torch.arange(before, before + length, device=input_ids.device)
        seen = torch.arange(before + length, device=input_ids.device)
        mask = (seen[None, :] <= places[:, None])[None, None]
        x, kept = self.words(input_ids) + self.places(places), []
        for layer, cache in zip(self.layers, past, strict=True):
            x, cache = layer(x, mask, cache)
            kept.append(cache)
        return self.norm(x) @ self.words.weight.T, torch.stack(kept)


# -- recurrent networks ----------------------------------------------------------------------------
class Recurrent(nn.Module):
    def __init__(self, kind, width=24, hidden=32):
        super().__init__()
        self.body = kind(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 10)

    def forward(self, x):
        y, state = self.body(x)
        last = state[0] if isinstance(state, tuple) else state
        return self.head(y).log_softmax(-1), last


class SmallCnn(nn.Module):
    """The network to quantise: convolutions, a residual sum, pooling, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = conv(3, 16, 3), conv(16, 16, 3, groups=16)
        self.c, self.head = conv(16, 32, 3, 2), nn.Linear(32, 10)

    def forward(self, x):
        x = self.a(x)
        x = F.max_pool2d(x + self.b(x), 2)
        return self.head(F.adaptive_avg_pool2d(self.c(x), 1).flatten(1))
