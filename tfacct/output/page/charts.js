// FLOPs and memory against the context, on logarithmic axes; the exact crossing of the lines is marked.

import * as count from "./count.js";
import * as ledger from "./ledger.js";
import * as notes from "./notes.js";
import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as dom from "./dom.js";

const { h, svg } = dom;
const WIDTH = 440,
	HEIGHT = 280,
	LEFT = 62,
	RIGHT = 12,
	TOP = 30,
	BOTTOM = 34;

// FLOPs against context: scores and values, and everything else.
export function flops(counted, go) {
	const parts = keys => {
		const { way, at } = elsewhere(counted, keys),
			both = [0n, 0n];
		for (const product of ledger.products(way, at, counted.state.masked)) {
			both[paths.component(product.line) === "attn_scores_values" ? 0 : 1] += product.forward;
		}
		return both;
	};
	const series = [
		["scores", "scores + values", keys => parts(keys)[0]],
		["attention", "everything else", keys => parts(keys)[1]],
	];
	const cross = count.overtakes(counted),
		[text = null] = notes.overtakes(counted);
	return chart("flops-context", "FLOPs against context", counted, series, numbers.si, cross, null, text, go);
}

// Memory against context: weights, cache, and both; the usable memory of the device as a line.
export function memory(counted, device, go) {
	const cached = keys => ledger.cacheBytes(counted.way, { ...counted.at, S: keys }, counted.cache);
	const series = [
		["mlp", "weights", () => counted.bytes],
		["scores", counted.model.cache_name, cached],
		["embed", "sum", keys => counted.bytes + cached(keys)],
	];
	const cross = crossing(keys => cached(keys) > counted.bytes),
		name = counted.model.cache_name;
	const room = device.serving - counted.bytes;
	const longest = room >= 0n ? ledger.longestContext(counted.way, cached, room, counted.limit) : 0n;
	const text = [
		cross ? `From ${numbers.grouped(cross)} tokens on, the ${name} needs more memory than the weights.` : "",
		fitting(device, longest),
	]
		.filter(Boolean)
		.join(" ");
	return chart("memory-context", "Memory against context", counted, series, numbers.binary, cross, device, text, go);
}

function fitting(device, longest) {
	if (longest === 0n) return `Not even one token fits on ${device.name}.`;
	if (longest >= ledger.LARGEST) return `Any context fits on ${device.name}.`;
	return `Up to ${numbers.grouped(longest)} tokens fit on ${device.name}.`;
}

// The same step at another context; a chunk has the same new tokens.
function elsewhere(counted, keys) {
	const { model, state, ways } = counted,
		at = count.axes(model, { ...state, ctx: keys });
	return { at, way: ledger.settled(ways, at, state.masked) };
}

// The first context from which something is true; null if that is the first token, or past 2^40.
function crossing(holds) {
	const most = 1n << 40n,
		last = ledger.largestThatFits(keys => (holds(keys) ? 1n : 0n), 0n, most);
	return last === 0n || last >= most ? null : last + 1n;
}

function chart(id, title, counted, series, format, cross, device, text, go) {
	const middle = Number(counted.at.S),
		trained = counted.model.context;
	const low = Math.max(1, Math.min(256, middle / 4));
	const high = Math.max(4 * middle, 4 * trained, cross && cross < 1n << 26n ? 2 * Number(cross) : 0);
	const steps = Array.from({ length: 49 }, (_, at) => BigInt(Math.round(low * (high / low) ** (at / 48))));
	const lines = series.map(([hue, name, of]) => ({ hue, name, values: steps.map(keys => log(of(keys))) }));
	const values = lines.flatMap(line => line.values).filter(Number.isFinite);
	const top = Math.max(...values, device ? log(device.serving) : -Infinity) + 0.3,
		bottom = Math.max(Math.min(...values) - 0.2, top - 8);
	const x = keys =>
		LEFT + ((Math.log(keys) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (WIDTH - LEFT - RIGHT);
	const y = value => TOP + ((top - Math.max(value, bottom)) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
	const at = event => {
		const box = event.currentTarget.getBoundingClientRect();
		const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
		return share >= 0 && share <= 1 ? BigInt(Math.max(1, Math.round(low * (high / low) ** share))) : null;
	};
	const onclick = event => at(event) !== null && go(at(event));
	const onpointermove = event => {
		const keys = at(event);
		const values = keys === null ? [] : series.map(([, name, of]) => `${name} ${format(of(keys))}`);
		reading.textContent = keys === null ? "" : `${numbers.grouped(keys)}: ${values.join(", ")}`;
	};
	const reading = h("p.reading", { "aria-hidden": "true" });
	const picture = svg(
		"svg.chart",
		{ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${text ?? ""}`, onclick, onpointermove },
		grid(low, high, x, bottom, top, y, format),
		device ? limit(device, y, top) : null,
		lines.map(line => svg(`polyline.${line.hue}`, { points: points(steps, line.values, x, y) })),
		marker("here", x(middle), TOP, null),
		cross && Number(cross) < high ? marker("cross", x(Number(cross)), TOP, numbers.grouped(cross)) : null,
	);
	return dom.panel(
		id,
		title,
		counted.state.train && !device ? "Of the forward pass. Click to go there." : "Click to go there.",
		picture,
		reading,
		dom.key(lines.map(({ hue, name }) => [hue, name])),
		text ? h("p.note", text) : null,
	);
}

const log = value =>
	value > 0n ? String(value).length - 15 + Math.log10(Number(String(value).padEnd(15, "0").slice(0, 15))) : -Infinity;

function points(steps, values, x, y) {
	return steps
		.flatMap((keys, at) =>
			Number.isFinite(values[at]) ? [`${x(Number(keys)).toFixed(1)},${y(values[at]).toFixed(1)}`] : [],
		)
		.join(" ");
}

function grid(low, high, x, bottom, top, y, format) {
	const found = [];
	const each = Math.max(1, Math.ceil((Math.log2(high / low) + 1) / 6));
	for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power += each) {
		found.push(svg("text", { x: x(2 ** power), y: HEIGHT - 12, "text-anchor": "middle" }, tokens(2 ** power)));
	}
	const binary = format === numbers.binary,
		octave = binary ? Math.log10(2) : 1;
	const stride = Math.max(1, Math.ceil((top - bottom) / octave / 6));
	for (let power = Math.ceil(bottom / octave); power * octave <= top; power += 1) {
		if (power % stride || power < 0) continue;
		const value = binary ? 2n ** BigInt(power) : 10n ** BigInt(power),
			at = y(power * octave);
		found.push(svg("line.grid", { x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }));
		found.push(
			svg(
				"text",
				{ x: LEFT - 8, y: at + 4, "text-anchor": "end" },
				format(value)
					.replace(/\.0+(?= )/, "")
					.replace(/\.00/, ""),
			),
		);
	}
	return found;
}

// 16k for 16,384 tokens, 2M for 2,097,152.
export function tokens(size) {
	const [step, name] =
		size >= 2 ** 30 ? [2 ** 30, "G"] : size >= 2 ** 20 ? [2 ** 20, "M"] : size >= 1024 ? [1024, "k"] : [1, ""];
	return `${size / step}${name}`;
}

function limit(device, y, top) {
	const at = y(Math.min(log(device.serving), top));
	return [
		svg("line.limit", { x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }),
		svg("text.halo", { x: LEFT + 6, y: at - 5 }, device.name),
	];
}

function marker(kind, x, top, text) {
	const end = Math.min(Math.max(x, LEFT + 30), WIDTH - 34);
	return [
		svg(`line.${kind}`, { x1: x, x2: x, y1: top, y2: HEIGHT - BOTTOM }),
		text
			? svg("text.strong.halo", { x: end, y: top - 9, "text-anchor": "middle" }, text)
			: svg("path.here", { d: `M${x - 5} ${HEIGHT - BOTTOM + 7}h10l-5 -9z` }),
	];
}
