"""Shapes of an SVG, and colours that follow the reader's colour scheme."""

from __future__ import annotations

from html import escape

#: The width of every picture.
WIDTH = 460
_STYLE = """
svg { font: 12px system-ui, sans-serif; }
.paper { fill: #ffffff; stroke: #d5d9e0; }
.text { fill: #1d2430; } .dim { fill: #5d6675; } .small { font-size: 10px; }
.line { fill: none; stroke: #9aa5b8; }
.box { stroke: #7f8da6; }
.a { fill: #e3ebff; } .b { fill: #dff3e6; } .c { fill: #fff0d6; } .d { fill: #f6e2f3; }
.e { fill: #eceff3; } .bar { fill: #5b7fd6; }
@media (prefers-color-scheme: dark) {
.paper { fill: #1b2029; stroke: #39414f; }
.text { fill: #e7ebf2; } .dim { fill: #a3adbd; }
.line { stroke: #66728a; } .box { stroke: #66728a; }
.a { fill: #263a66; } .b { fill: #1f4a33; } .c { fill: #55411a; } .d { fill: #4d2b49; }
.e { fill: #2a313d; } .bar { fill: #7d9bea; }
}
"""


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A box; ``kind`` is one of the style's fills a to e; the title is its tooltip."""
    about = f"<title>{escape(title)}</title>" if title else ""
    return (f'<rect class="box {kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="4">{about}</rect>')


def bar(x: float, y: float, width: float, height: float) -> str:
    """A bar of a chart."""
    return (f'<rect class="bar" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            'rx="2"/>')


def text(x: float, y: float, words: str, kind: str = "text", anchor: str = "start") -> str:
    """A line of text with its baseline at ``y``."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def line(points: list[tuple[float, float]], arrow: bool = False) -> str:
    """A line through points."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path class="line" d="{path}"' + ' marker-end="url(#arrow)"' * arrow + "/>"


def svg(height: float, title: str, parts: list[str]) -> str:
    """The whole picture. ``title`` describes it for readers who can't see it."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="600" viewBox="0 0 {WIDTH} {height:g}" '
        'role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="line" d="M0 0 L8 4 L0 8"/></marker></defs>\n'
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8"/>'
        f"\n{body}\n</svg>\n"
    )
