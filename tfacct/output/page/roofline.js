// FLOPs per byte of every kernel, and the ridge of a device. No seconds.

import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as dom from "./dom.js";

const { h, svg } = dom;
const WIDTH = 440,
	HEIGHT = 270,
	LEFT = 20,
	RIGHT = 20,
	BASE = 216;

export function roofline(counted, device) {
	if (counted.dtype === null || !device.ridge) {
		const why = device.ridge
			? "Choose a dtype: the bytes of quantized weights depend on it."
			: `No bf16 peak is known for ${device.name}.`;
		return dom.panel("roofline", "Memory-bound or compute-bound", null, h("p.note", why));
	}
	const { ridge } = device;
	const points = counted.kernels
		.filter(({ bytes, forward }) => bytes > 0n && forward > 0n)
		.map(kernel => ({ kernel, each: Number(numbers.decimals(kernel.forward, kernel.bytes, 6)) }));
	const all = [...points.map(point => point.each), ridge];
	const low = Math.log10(Math.max(Math.min(...all) / 2, 0.05)),
		high = Math.log10(Math.max(...all) * 2.5);
	const x = each => LEFT + ((Math.log10(Math.max(each, 0.05)) - low) / (high - low)) * (WIDTH - LEFT - RIGHT);
	const under = points.filter(point => point.each < ridge).reduce((sum, point) => sum + point.kernel.forward, 0n);
	const total = points.reduce((sum, point) => sum + point.kernel.forward, 0n);
	const where = `the ridge of ${device.name}, ${ridge.toFixed(0)} FLOPs per byte in bf16`;
	const answer = under
		? `${numbers.percent(under, total)} of the FLOPs are in kernels below ${where}: memory-bound.`
		: `Every kernel is above ${where}: compute-bound.`;
	return dom.panel(
		"roofline",
		"Memory-bound or compute-bound",
		counted.fused ? "FLOPs per byte, fused attention." : "FLOPs per byte.",
		svg(
			"svg.chart",
			{ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": answer },
			svg("rect.below", { x: LEFT, y: 20, width: Math.max(x(ridge) - LEFT, 0), height: BASE - 20 }),
			svg("line.cross", { x1: x(ridge), x2: x(ridge), y1: 20, y2: BASE }),
			svg(
				"text.strong.halo",
				{ x: Math.min(Math.max(x(ridge), 60), WIDTH - 60), y: 14, "text-anchor": "middle" },
				`ridge ${ridge.toFixed(0)}`,
			),
			ticks(low, high, x),
			dots(points, total, x),
		),
		h("p.note", answer),
	);
}

function ticks(low, high, x) {
	const found = [svg("line.grid", { x1: LEFT, x2: WIDTH - RIGHT, y1: BASE, y2: BASE })];
	for (let power = Math.ceil(low); power <= high; power += 1) {
		const text = power < 0 ? (10 ** power).toFixed(-power) : numbers.grouped(10n ** BigInt(power));
		found.push(svg("text", { x: x(10 ** power), y: BASE + 20, "text-anchor": "middle" }, text));
	}
	found.push(svg("text", { x: WIDTH / 2, y: HEIGHT - 10, "text-anchor": "middle" }, "FLOPs per byte moved"));
	return found;
}

// A dot for each kernel, larger for more FLOPs; dots of near intensity are stacked.
function dots(points, total, x) {
	const placed = [];
	const ranked = [...points].sort((one, other) => (other.kernel.forward > one.kernel.forward ? 1 : -1));
	for (const { kernel, each } of ranked) {
		const radius = 4 + 14 * Math.sqrt(Number(numbers.decimals(kernel.forward, total || 1n, 6)));
		let y = BASE - radius - 4;
		const at = x(each);
		const meets = () => placed.find(one => Math.hypot(one.at - at, one.y - y) < one.radius + radius + 1);
		while (meets() && y > 40) y -= 6;
		placed.push({ at, y, radius, kernel, each });
	}
	const named = legible(placed);
	return [
		placed.map(({ at, y, radius, kernel, each }) =>
			svg(
				`circle.${paths.hue(kernel.name)}`,
				{ cx: at, cy: y, r: radius },
				svg("title", `${paths.short(kernel.path)}: ${each.toFixed(2)} FLOPs per byte`),
			),
		),
		named.map(label),
	];
}

// Names of the largest dots, where they cover neither another name nor a dot.
function legible(placed) {
	const found = [];
	for (const { at, y, radius, kernel } of placed) {
		const text = (paths.parse(kernel.path).leaf || paths.short(kernel.path)).replaceAll("_", " ");
		const width = 6.6 * text.length,
			left = at + radius + width > WIDTH - RIGHT;
		const x = left ? at - radius - 4 - width : at + radius + 4;
		const covers = one => one.x < x + width && one.x + one.width > x && Math.abs(one.y - y) < 12;
		const dot = one => covers({ x: one.at - one.radius, width: 2 * one.radius, y: one.y });
		if (!found.some(covers) && !placed.some(one => one.kernel !== kernel && dot(one)))
			found.push({ x, y, width, text });
	}
	return found;
}

function label({ x, y, text }) {
	return svg("text.halo", { x, y: y + 4 }, text);
}
