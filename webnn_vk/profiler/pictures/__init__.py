"""Pictures of graphs: boxes and values, folded, laid out by fast-sugiyama, drawn as SVG."""

from .layout import PicturesUnavailable
from .page import page
from .pass_pictures import PassPictures
from .picture import Box, Picture, of_program
from .svg import fragment, svg
