"""Colours of pictures, light or dark and safe for colour-blind readers; greys and hatches for print."""

from __future__ import annotations

from typing import Any

from tfacct.base.record import record

BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW, GREY = range(8)
"""Indices in both palettes."""
OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#f0e442", "#999999")
"""Okabe and Ito, "Color Universal Design" (2008), with a grey instead of black, which is the colour of text."""
ON_DARK = ("#3f9fe0", "#e69f00", "#1fb58c", "#8fd0f5", "#ee7733", "#dd93bb", "#f0e442", "#a8a8a8")
"""The same, brighter for a dark background."""
OF_LINES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)
"""Colours of lines in turn, without yellow, which is hard to see on white."""
GREYS = ("0.35", "0.9", "0.6", "1.0", "0.75", "1.0", "0.9", "1.0")
HATCHES = ("", "////", "", "....", "\\\\\\\\", "xxxx", "----", "")
"""With the greys, eight fills that are distinct in black and white."""
STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (8, 1, 1, 1, 1, 1)))
"""Strokes of lines; dots mean past the longest context."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@record
class Look:
    """Style of a picture: dark or light; `printed`: greys and hatches. Text is never grey on grey."""

    dark: bool = False
    printed: bool = False

    @property
    def ground(self) -> str:
        """Background colour."""
        return "#15181d" if self.dark else "white"

    @property
    def ink(self) -> str:
        """Colour of text and axes."""
        return "#e6e6e6" if self.dark else "#222222"

    @property
    def faint(self) -> str:
        """Colour of the grid."""
        return "#343a42" if self.dark else "#dddddd"

    def hue(self, number: int) -> str:
        """Colour of a series; repeats from the ninth on."""
        colours = GREYS if self.printed else ON_DARK if self.dark else OKABE_ITO
        return colours[number % len(colours)]

    def fill(self, number: int) -> dict[str, Any]:
        """Fill of an area or a bar, as matplotlib keywords."""
        if self.printed:
            return {"hatch": HATCHES[number % len(HATCHES)], "edgecolor": "0.1", "linewidth": 0.6}
        return {"edgecolor": self.ground}

    def stroke(self, number: int) -> dict[str, Any]:
        """Stroke of a line, as matplotlib keywords. The first three lines have the first three colours.

        In print, dashes and markers distinguish lines.
        """
        again, place = divmod(number, len(OF_LINES))
        if not self.printed:
            return {"color": self.hue(OF_LINES[place]), "linestyle": STYLES[again % len(STYLES)], "linewidth": 2}
        return {
            "color": ("0.1", "0.45")[number % 2],
            "linestyle": STYLES[number % len(STYLES)],
            "marker": MARKERS[number % len(MARKERS)],
            "markersize": 5,
            "linewidth": 1.3,
        }
