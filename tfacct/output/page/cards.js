// What holds it: every card with what is free on it, the longest context and the largest batch, to the token.

import * as ledger from "./ledger.js";
import * as numbers from "./numbers.js";
import * as dom from "./dom.js";

const { h, svg } = dom;
// Cards that most people have or rent; the others are a click away.
const COMMON = new Set([
	"t4",
	"l4",
	"rtx-3090",
	"rtx-4090",
	"rtx-5090",
	"a100-sxm-40gb",
	"a100-sxm-80gb",
	"l40s",
	"h100-sxm",
	"h200-sxm",
	"b200-hgx",
	"mi300x",
	"m4-max",
	"tpu-v5e",
]);

const LIMITS = [
	["Longest context", "number"],
	["Largest batch", "number"],
];

export function cards(counted, devices, usable, chosen, every, acts) {
	if (counted.dtype === null) {
		return dom.panel("cards", "What holds it", null, h("p.said", "Choose a dtype to see what holds its weights."));
	}
	const shown = devices.filter(device => every || COMMON.has(device.id) || device.id === chosen);
	const most = shown.reduce((best, one) => (one.memory > best ? one.memory : best), counted.held);
	const rows = shown
		.sort((one, other) => Number(one.memory - other.memory))
		.map(device => row(counted, device, most, chosen, acts.choose));
	const columns = [
		["Card", ""],
		["Memory", "number"],
		["Filled", "gauge"],
		["Free", "number"],
		...(counted.model.keeps ? LIMITS : []),
	];
	const what = counted.model.keeps ? "Weights and what is kept between steps" : "Weights: nothing is kept between steps",
		said =
			`${past(counted)}${what}, on one card; no activations, engine buffers or fragmentation.` +
			` Usable: ${usable.serving}.` +
			" Memory is torch's total of the card; with *, that is not known, and the board's or the marketed is shown.";
	return dom.panel(
		"cards",
		"What holds it",
		null,
		dom.table("Cards and what is free on them", columns, rows),
		h(
			"button.plain",
			{ type: "button", id: "more-cards", onclick: acts.more },
			every ? "Only common cards" : `All ${devices.length} cards`,
		),
		h("p.said", said),
	);
}

function row(counted, device, most, chosen, choose) {
	const room = device.serving - counted.bytes,
		{ at, way, cache, kept, limit } = counted;
	const bytes = more => ledger.cacheBytes(way, { ...at, ...more }, cache);
	const free = room - kept;
	const largest = found => most_(room < 0n ? 0n : found());
	const context = () => ledger.longestContext(way, S => bytes({ S }), room, limit);
	const batch = () => (at.S > limit ? 0n : ledger.largestThatFits(B => bytes({ B }), room));
	const limits = counted.model.keeps ? [largest(context), largest(batch)] : [];
	const name = h(
		"button.plain",
		{ type: "button", "data-card": device.id, onclick: () => choose(device.id) },
		device.name.split(/, one of| \(/)[0],
	);
	return {
		class: device.id === chosen ? "chosen" : null,
		cells: [
			name,
			`${numbers.binary(device.memory)}${device.others ? "*" : ""}`,
			gauge(counted, device, most),
			h(free < 0n ? "span.over" : "span.free", free < 0n ? `${numbers.binary(-free)} over` : numbers.binary(free)),
			...limits,
		],
	};
}

function most_(size) {
	if (size === 0n) return "–";
	return size >= ledger.LARGEST ? "any" : numbers.grouped(size);
}

// Why the step cannot run, where it ends past a stored position embedding.
function past({ at, limit }) {
	if (at.S <= limit) return "";
	const [asked, most] = [at.S, limit].map(numbers.grouped);
	return `Cannot run: context ${asked} is past the ${most} positions of its position embedding. `;
}

// Weights and what is kept beside the card's memory, to the scale of the largest card.
function gauge({ bytes, held }, device, most) {
	const part = size => 100 * Number(numbers.decimals(size, most, 6));
	return svg(
		"svg.gauge",
		{ viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
		svg("rect.room", { x: 0, y: 0, width: part(device.serving), height: 10 }),
		svg("rect.cache", { x: 0, y: 2, width: part(held), height: 6 }),
		svg("rect.mlp", { x: 0, y: 2, width: part(bytes), height: 6 }),
		svg("rect.edge", { x: Math.max(part(device.serving) - 0.6, 0), y: 0, width: 0.8, height: 10 }),
	);
}
