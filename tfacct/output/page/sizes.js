// Every size of a model by its axis, as a field.

import * as numbers from "./numbers.js";
import * as state from "./state.js";
import * as count from "./count.js";
import * as dom from "./dom.js";

const { h } = dom;

// Every size by its axis. They are sizes of products: no config checks them.
export function fields(model, now, update) {
	const changed = count.changed(model, now);
	const rows = Object.entries(model.sizes).map(([axis, configured]) => {
		const id = `size-${axis}`,
			value = changed[axis] ?? configured;
		return h(
			"div",
			h("label", { for: id, "data-axis": axis }, axis),
			h("span", model.legend[axis] ?? ""),
			h("input", {
				id,
				type: "text",
				inputmode: "numeric",
				autocomplete: "off",
				value: numbers.grouped(value),
				class: value === configured ? null : "changed",
				onchange: event => {
					const read = state.whole(event.target.value),
						why = read === undefined ? "" : state.refused(model, { ...changed, [axis]: read });
					event.target.setAttribute("aria-invalid", String(read === undefined || why !== ""));
					event.target.setCustomValidity(why);
					if (read !== undefined && !why) update(last => ({ sizes: { ...last.sizes, [axis]: read } }));
					else event.target.reportValidity();
				},
			}),
		);
	});
	return h(
		"details.sizes",
		{ id: "sizes", open: Object.keys(now.sizes).length > 0 },
		h("summary", "Every size"),
		h("p.hint", "Sizes of the matmuls, not config fields."),
		h("div.symbols", rows),
	);
}
