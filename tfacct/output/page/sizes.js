// Every size of a model by its letter, to be typed over.

import * as numbers from "./numbers.js";
import * as state from "./state.js";
import * as count from "./count.js";
import * as dom from "./dom.js";

const { h } = dom;

// Every size by its letter. They are sizes of lines: what a config would refuse is not asked here.
export function fields(model, now, turn) {
	const changed = count.changed(model, now);
	const rows = Object.entries(model.sizes).map(([letter, built]) => {
		const id = `size-${letter}`,
			value = changed[letter] ?? built;
		return h(
			"div",
			h("label", { for: id, "data-axis": letter }, letter),
			h("span", model.legend[letter] ?? ""),
			h("input", {
				id,
				type: "text",
				inputmode: "numeric",
				autocomplete: "off",
				value: numbers.grouped(value),
				class: value === built ? null : "changed",
				onchange: event => {
					const read = state.whole(event.target.value),
						why = read === undefined ? "" : state.refused(model, { ...changed, [letter]: read });
					event.target.setAttribute("aria-invalid", String(read === undefined || why !== ""));
					event.target.setCustomValidity(why);
					if (read !== undefined && !why) turn(last => ({ sizes: { ...last.sizes, [letter]: read } }));
					else event.target.reportValidity();
				},
			}),
		);
	});
	return h(
		"details.sizes",
		{ id: "sizes", open: Object.keys(now.sizes).length > 0 },
		h("summary", "Every size, by letter"),
		h("p.hint", "Sizes of the lines, not fields of a config."),
		h("div.letters", rows),
	);
}
