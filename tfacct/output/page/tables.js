// Tables: matrix products, sortable; a comparison; all models with the same settings.

import * as count from "./count.js";
import * as einsum from "./einsum.js";
import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as dom from "./dom.js";

const { h } = dom;
const g = numbers.grouped;

const COLUMNS = [
	["matmul", "", row => paths.short(row.line.path)],
	["einsum", "spec", row => row.line.spec],
	["m × k × n", "number", row => row.dims.m * row.dims.k * row.dims.n],
	["times", "number", row => row.dims.times],
	["FLOPs", "number", row => row.flops],
	["share", "number", row => row.flops],
];

// Matrix products; a heading sorts, and reverses the order when clicked again.
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
		"Matmuls",
		null,
		dom.table("Matmuls with their FLOPs", columns, [...cells, total]),
	);
}

// Side by side: the same numbers of both, and their change.
export function comparison(counted, other, names) {
	const rows = [
		["Parameters", "params", numbers.people],
		["Active parameters", "active", numbers.people],
		["FLOPs", "flops", numbers.si],
		["Bytes moved", "moved", numbers.binary],
		["Weights", "bytes", numbers.binary],
		["KV cache or state", "cached", numbers.binary],
		["Weights + cache", "memory", numbers.binary],
	].filter(([, key]) => counted[key] > 0n && other[key] > 0n);
	const weighed = (one, key) => one.dtype === null && ["moved", "bytes", "memory"].includes(key);
	const cells = rows.map(([label, key, format]) => ({
		cells: [
			label,
			...[counted, other].map(one =>
				weighed(one, key) ? "choose a dtype" : h("span", { title: g(one[key]) }, format(one[key])),
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
	return dom.panel("comparison", "Side by side", null, dom.table(`${names[0]} and ${names[1]}`, columns, cells));
}

const GALLERY = [
	["model", ""],
	["family", ""],
	["params", "number"],
	["context", "number"],
	["FLOPs", "number"],
	["weights", "number"],
	["cache", "number"],
	["fits", "number"],
];

// All models with the same settings; a column tells which fit on the device.
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
		r => (state.step === "prefill" || r.model.has_cache ? r.counted.flops : 0n),
		r => r.counted.bytes,
		r => r.counted.cached,
		r => r.counted.memory,
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
	const own = state.ctx === null ? ", each at its longest context" : "";
	const text = `${fitting} of ${rows.length} models fit on ${device.name} with these settings${own}.`;
	return [
		h("p.note", { role: "status" }, text),
		dom.table(
			"All models with the same settings",
			columns,
			rows.map(row => galleryRow(row, state, device, acts)),
		),
	];
}

// The state for another model: it has its own sizes and heads.
function mine(state, model) {
	const step = model.has_cache ? state.step : "prefill";
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
			state.step === "prefill" || model.has_cache ? numbers.si(counted.flops) : "no decode step",
			known ? numbers.binary(counted.bytes) : "quantized",
			model.has_cache ? numbers.binary(counted.cached) : "–",
			known ? h(fits ? "span.free" : "span.over", fits ? "fits" : tooMuch(counted)) : "?",
		],
	};
}
