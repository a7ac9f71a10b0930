"""Colours of pictures, light or dark, for colour-blind readers too; greys and hatches for print."""

from __future__ import annotations

from typing import Any

from tfacct.base.record import record

BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW, GREY = range(8)
"""Places in both palettes."""
OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7", "#f0e442", "#999999")
"""Okabe and Ito, "Color Universal Design" (2008), its black left to the letters and a grey in its place."""
ON_DARK = ("#3f9fe0", "#e69f00", "#1fb58c", "#8fd0f5", "#ee7733", "#dd93bb", "#f0e442", "#a8a8a8")
"""The same, as bright as a dark ground wants them."""
OF_LINES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)
"""Colours of lines in turn: no yellow, which is lost on white."""
GREYS = ("0.35", "0.9", "0.6", "1.0", "0.75", "1.0", "0.9", "1.0")
HATCHES = ("", "////", "", "....", "\\\\\\\\", "xxxx", "----", "")
"""Together with the greys, eight fills that a black-and-white printer tells apart."""
STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (8, 1, 1, 1, 1, 1)))
"""Strokes of lines; dots are left to what is past a longest context."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@record
class Look:
    """How a picture looks: dark or light; `printed`, in greys and hatches. The letters are never grey on grey."""

    dark: bool = False
    printed: bool = False

    @property
    def ground(self) -> str:
        """Colour behind everything."""
        return "#15181d" if self.dark else "white"

    @property
    def ink(self) -> str:
        """Colour of letters and axes."""
        return "#e6e6e6" if self.dark else "#222222"

    @property
    def faint(self) -> str:
        """Colour of the grid."""
        return "#343a42" if self.dark else "#dddddd"

    def hue(self, number: int) -> str:
        """Colour of a series, over again from the ninth on."""
        colours = GREYS if self.printed else ON_DARK if self.dark else OKABE_ITO
        return colours[number % len(colours)]

    def fill(self, number: int) -> dict[str, Any]:
        """Fill of an area or a bar, as matplotlib's keywords."""
        if self.printed:
            return {"hatch": HATCHES[number % len(HATCHES)], "edgecolor": "0.1", "linewidth": 0.6}
        return {"edgecolor": self.ground, "linewidth": 0.8}

    def stroke(self, number: int) -> dict[str, Any]:
        """Stroke of the line of that number, the first three in the first three colours, as matplotlib's keywords.

        In print dashes and markers tell lines apart.
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
