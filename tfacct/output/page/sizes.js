// Every size of a model by its axis, as a field.

import * as numbers from "./numbers.js";
import * as state from "./state.js";
import * as count from "./count.js";
import * as dom from "./dom.js";

const { h } = dom;

// Every size by its axis. They are sizes of products: no config checks them.
export function fields(model, now, update) {
	const changed = count.changed(model, now);
	const rows = Object.entries(model.sizes).map(([letter, configured]) => {
		const id = `size-${letter}`,
			value = changed[letter] ?? configured;
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
				class: value === configured ? null : "changed",
				onchange: event => {
					const read = state.whole(event.target.value),
						why = read === undefined ? "" : state.refused(model, { ...changed, [letter]: read });
					event.target.setAttribute("aria-invalid", String(read === undefined || why !== ""));
					event.target.setCustomValidity(why);
					if (read !== undefined && !why) update(last => ({ sizes: { ...last.sizes, [letter]: read } }));
					else event.target.reportValidity();
				},
			}),
		);
	});
	return h(
		"details.sizes",
		{ id: "sizes", open: Object.keys(now.sizes).length > 0 },
		h("summary", "Every size"),
		h("p.hint", "Sizes of the matrix products, not config fields."),
		h("div.letters", rows),
	);
}
