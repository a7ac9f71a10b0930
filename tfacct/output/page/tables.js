// Tables: every product, sortable; two models side by side; all models at the same knobs.

import * as count from "./count.js";
import * as einsum from "./einsum.js";
import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as dom from "./dom.js";

const { h } = dom;
const g = numbers.grouped;

const COLUMNS = [
	["operation", "", row => paths.short(row.line.path)],
	["einsum", "spec", row => row.line.spec],
	["m × k × n", "number", row => row.dims.m * row.dims.k * row.dims.n],
	["times", "number", row => row.dims.times],
	["FLOPs", "number", row => row.flops],
	["share", "number", row => row.flops],
];

// Every product; a heading sorts, and sorts the other way when it is chosen again.
export function products(counted, order, sort) {
	const rows = count.shown(counted.products);
	if (order) {
		const value = COLUMNS[order.column][2],
			less = (one, other) => (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : 0);
		rows.sort((one, other) => (order.down ? -less(one, other) : less(one, other)));
	}
	const columns = COLUMNS.map(([label, kind], column) => [
		h(
			"button.plain",
			{ type: "button", "data-sort": label, onclick: () => sort(column) },
			label,
			order?.column === column ? (order.down ? " ↓" : " ↑") : "",
		),
		kind,
	]);
	const cells = rows.map(row => ({
		cells: [
			[paths.short(row.line.path), row.kind ? h("em", ` ${row.kind}`) : null],
			einsum.renamed(row.line.spec, row.group.names).replace("->", "→"),
			`${g(row.dims.m)} × ${g(row.dims.k)} × ${g(row.dims.n)}`,
			g(row.dims.times),
			h("span", { title: g(row.flops) }, numbers.si(row.flops)),
			counted.flops ? numbers.percent(row.flops, counted.flops) : "–",
		],
	}));
	const total = {
		class: "total",
		cells: ["total", "", "", "", h("span", { title: g(counted.flops) }, numbers.si(counted.flops)), ""],
	};
	return dom.panel(
		"products",
		"Every product",
		null,
		dom.table("Products with their FLOPs", columns, [...cells, total]),
	);
}

// Side by side: the same numbers of both, and what the first is of the second.
export function beside(counted, other, names) {
	const rows = [
		["Parameters", "params", numbers.people],
		["Active parameters", "active", numbers.people],
		["FLOPs", "flops", numbers.si],
		["Bytes moved", "moved", numbers.binary],
		["Weights", "bytes", numbers.binary],
		["Kept between steps", "kept", numbers.binary],
		["Held together", "held", numbers.binary],
	].filter(([, key]) => counted[key] > 0n && other[key] > 0n);
	const weighed = (one, key) => one.dtype === null && ["moved", "bytes", "held"].includes(key);
	const cells = rows.map(([label, key, spoken]) => ({
		cells: [
			label,
			...[counted, other].map(one =>
				weighed(one, key) ? "choose a dtype" : h("span", { title: g(one[key]) }, spoken(one[key])),
			),
			weighed(counted, key) || weighed(other, key) ? "" : numbers.change(counted[key], other[key]),
		],
	}));
	const columns = [
		["quantity", ""],
		[names[0], "number"],
		[names[1], "number"],
		["change", "number"],
	];
	return dom.panel("beside", "Side by side", null, dom.table(`${names[0]} beside ${names[1]}`, columns, cells));
}

const GALLERY = [
	["model", ""],
	["family", ""],
	["params", "number"],
	["context", "number"],
	["FLOPs", "number"],
	["weights", "number"],
	["kept", "number"],
	["fits", "number"],
];

// All models at the same knobs; those that a card holds are marked.
export function gallery(page, state, device, query, order, acts) {
	const wanted = query.toLowerCase().split(" ").filter(Boolean);
	const found = page.models.filter(model =>
		wanted.every(word => `${model.name} ${model.family}`.toLowerCase().includes(word)),
	);
	const rows = found.map(model => ({ model, counted: count.count(model, mine(state, model)) }));
	const value = [
		r => r.model.name,
		r => r.model.family,
		r => r.counted.params,
		r => r.counted.at.S,
		r => (state.step === "prefill" || r.model.keeps ? r.counted.flops : 0n),
		r => r.counted.bytes,
		r => r.counted.kept,
		r => r.counted.held,
	][order.column];
	rows.sort(
		(one, other) => (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : 0) * (order.down ? -1 : 1),
	);
	const columns = GALLERY.map(([label, kind], column) => [
		h(
			"button.plain",
			{ type: "button", "data-order": label, onclick: () => acts.order(column) },
			label,
			order.column === column ? (order.down ? " ↓" : " ↑") : "",
		),
		kind,
	]);
	const fitting = rows.filter(({ counted }) => counted.dtype !== null && count.fits(counted, device.serving)).length;
	const own = state.ctx === null ? ", each at its own longest context" : "";
	const said = `${fitting} of ${rows.length} models fit on ${device.name} at these knobs${own}.`;
	return [
		h("p.said", { role: "status" }, said),
		dom.table(
			"All models at the same knobs",
			columns,
			rows.map(row => galleryRow(row, state, device, acts)),
		),
	];
}

// Knobs that another model has too: its own sizes and heads are its own.
function mine(state, model) {
	const step = model.keeps ? state.step : "prefill";
	return {
		...state,
		sizes: {},
		shared: null,
		form: null,
		step,
		train: state.train && step === "prefill",
		source: null,
	};
}

const tooMuch = ({ at, limit }) => (at.S > limit ? "too long" : "too large");

function galleryRow({ model, counted }, state, device, acts) {
	const known = counted.dtype !== null,
		fits = known && count.fits(counted, device.serving);
	return {
		class: model.name === state.model ? "chosen" : null,
		cells: [
			h(
				"button.plain",
				{ type: "button", "data-model": model.name, onclick: () => acts.choose(model.name) },
				model.name,
			),
			model.family,
			numbers.people(counted.params),
			g(counted.at.S),
			state.step === "prefill" || model.keeps ? numbers.si(counted.flops) : "no such step",
			known ? numbers.binary(counted.bytes) : "quantized",
			model.keeps ? numbers.binary(counted.kept) : "–",
			known ? h(fits ? "span.free" : "span.over", fits ? "fits" : tooMuch(counted)) : "?",
		],
	};
}
