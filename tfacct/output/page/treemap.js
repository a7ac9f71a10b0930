// Treemap: matrix products, tensors or bytes as rectangles, each as large as its share.

import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as dom from "./dom.js";

const { h, svg } = dom;
const WIDTH = 440,
	HEIGHT = 270;
const KINDS = { FLOPs: "si", parameters: "people", "bytes moved": "binary", memory: "binary" };

export function treemap(counted, kind, choose) {
	const rows = areas(counted, kind)
		.filter(row => row.size > 0n)
		.sort((one, other) => (other.size > one.size ? 1 : -1));
	const total = rows.reduce((sum, row) => sum + row.size, 0n);
	const tabs = h(
		"div.tabs",
		{ role: "group", "aria-label": "Areas of" },
		Object.keys(KINDS).map(name =>
			h(
				"button",
				{ type: "button", "data-area": name, "aria-pressed": String(name === kind), onclick: () => choose(name) },
				name,
			),
		),
	);
	const unknown = counted.dtype === null && (kind === "memory" || kind === "bytes moved");
	// Areas too small to be seen are not drawn.
	const drawn = rows
		.map(row => ({ ...row, area: share(row.size, total) * WIDTH * HEIGHT }))
		.filter(row => row.area > 0);
	const body =
		unknown || !total
			? h("p.note", unknown ? "Choose a dtype." : "Nothing to show.")
			: svg(
					"svg.treemap",
					{ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Areas of ${kind}` },
					squarified(drawn, 0, 0, WIDTH, HEIGHT).map(placed => rectangle(placed, total, KINDS[kind])),
				);
	return dom.panel("areas", "By area", null, tabs, body);
}

const share = (part, whole) => Number(numbers.decimals(part, whole, 8));

function areas(counted, kind) {
	if (kind === "parameters" || kind === "memory") {
		const size = one => one.count * (kind === "memory" ? counted.weights(one.stored) : one.elements);
		const stored = counted.tensors.map(one => ({
			name: paths.short(one.path).replace(/\.weight$/, ""),
			hue: paths.hue(paths.heading(one.path)),
			size: size(one),
		}));
		const cached = counted.states.map(one => ({ name: paths.short(one.line.path), hue: "cache", size: one.bytes }));
		return merged(kind === "memory" ? [...stored, ...cached] : stored);
	}
	const size = one => (kind === "FLOPs" ? one.flops : one.moved.read + one.moved.written);
	return merged(
		counted.products.map(one => ({ name: paths.short(one.line.path), hue: paths.hue(one.name), size: size(one) })),
	);
}

function merged(rows) {
	const found = new Map();
	for (const row of rows) found.set(row.name, { ...row, size: row.size + (found.get(row.name)?.size ?? 0n) });
	return [...found.values()];
}

// Squarified rows (Bruls, Huizing, van Wijk, 2000): a row grows while its worst rectangle gets squarer.
function squarified(rows, x, y, width, height) {
	if (!rows.length) return [];
	const side = Math.min(width, height);
	let taken = 1;
	while (taken < rows.length && worst(rows.slice(0, taken + 1), side) <= worst(rows.slice(0, taken), side)) taken += 1;
	const row = rows.slice(0, taken),
		area = row.reduce((sum, one) => sum + one.area, 0),
		depth = area / side;
	let along = 0;
	const placed = row.map(one => {
		const length = one.area / depth,
			at = along;
		along += length;
		return width >= height
			? { ...one, x, y: y + at, width: depth, height: length }
			: { ...one, x: x + at, y, width: length, height: depth };
	});
	const rest = rows.slice(taken);
	return [
		...placed,
		...(width >= height
			? squarified(rest, x + depth, y, width - depth, height)
			: squarified(rest, x, y + depth, width, height - depth)),
	];
}

function worst(row, side) {
	const areas = row.map(one => one.area),
		sum = areas.reduce((one, other) => one + other, 0);
	return Math.max((side * side * Math.max(...areas)) / (sum * sum), (sum * sum) / (side * side * Math.min(...areas)));
}

function rectangle({ name, hue, size, x, y, width, height }, total, unit) {
	const fits = width > 7 * name.length * 0.9 + 10 && height > 18;
	return svg(
		"g",
		svg(
			`rect.${hue}`,
			{ x: x + 0.75, y: y + 0.75, width: Math.max(width - 1.5, 0.5), height: Math.max(height - 1.5, 0.5), rx: 2 },
			svg("title", `${name}: ${numbers[unit](size)}, ${numbers.percent(size, total)}`),
		),
		fits ? svg("text.inside", { x: x + 7, y: y + 16 }, name) : null,
		fits && height > 34 ? svg("text.inside.faint", { x: x + 7, y: y + 31 }, numbers.percent(size, total)) : null,
	);
}
