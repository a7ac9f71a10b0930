// What fits: the free memory of every device, the longest context and the largest batch, to the token.

import * as ledger from "./ledger.js";
import * as numbers from "./numbers.js";
import * as dom from "./dom.js";

const { h, svg } = dom;
// Devices that most people have or rent; a button shows the others.
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

const TITLE = "What fits on one device";
const LIMITS = [
	["Longest context", "number"],
	["Largest batch", "number"],
];

export function cards(counted, devices, usable, chosen, every, acts) {
	if (counted.dtype === null) {
		return dom.panel("cards", TITLE, null, h("p.note", "Choose a dtype to see what fits."));
	}
	const shown = devices.filter(device => every || COMMON.has(device.id) || device.id === chosen);
	const most = shown.reduce((best, one) => (one.memory > best ? one.memory : best), counted.memory);
	const rows = shown
		.sort((one, other) => Number(one.memory - other.memory))
		.map(device => row(counted, device, most, chosen, acts.choose));
	const columns = [
		["Device", ""],
		["Memory", "number"],
		["Used", "gauge"],
		["Free", "number"],
		...(counted.model.has_cache ? LIMITS : []),
	];
	const what = counted.model.has_cache ? `Weights and ${counted.model.cache_name}` : "Weights",
		text =
			`${past(counted)}${what} on one device; no activations, engine buffers or fragmentation.` +
			` Usable: ${usable.serving}.` +
			" Memory as reported by torch; *: as stated by the vendor.";
	return dom.panel(
		"cards",
		TITLE,
		null,
		dom.table("Free memory of each device", columns, rows),
		h(
			"button.plain",
			{ type: "button", id: "more-cards", onclick: acts.more },
			every ? "Only common devices" : `All ${devices.length} devices`,
		),
		h("p.note", text),
	);
}

function row(counted, device, most, chosen, choose) {
	const room = device.serving - counted.bytes,
		{ at, way, cache, cached, limit } = counted;
	const bytes = more => ledger.cacheBytes(way, { ...at, ...more }, cache);
	const free = room - cached;
	const largest = found => limitText(room < 0n ? 0n : found());
	const context = () => ledger.longestContext(way, S => bytes({ S }), room, limit);
	const batch = () => (at.S > limit ? 0n : ledger.largestThatFits(B => bytes({ B }), room));
	const limits = counted.model.has_cache ? [largest(context), largest(batch)] : [];
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

function limitText(size) {
	if (size === 0n) return "–";
	return size >= ledger.LARGEST ? "any" : numbers.grouped(size);
}

// Why the step cannot run, if it ends past a learned position embedding.
function past({ at, limit }) {
	if (at.S <= limit) return "";
	const [asked, most] = [at.S, limit].map(numbers.grouped);
	return `Cannot run: context ${asked} is past the ${most} positions of its position embedding. `;
}

// Weights and cache within the memory of a device, to the scale of the largest device.
function gauge({ bytes, memory }, device, most) {
	const part = size => 100 * Number(numbers.decimals(size, most, 6));
	return svg(
		"svg.gauge",
		{ viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
		svg("rect.room", { x: 0, y: 0, width: part(device.serving), height: 10 }),
		svg("rect.cache", { x: 0, y: 2, width: part(memory), height: 6 }),
		svg("rect.mlp", { x: 0, y: 2, width: part(bytes), height: 6 }),
		svg("rect.edge", { x: Math.max(part(device.serving) - 0.6, 0), y: 0, width: 0.8, height: 10 }),
	);
}
