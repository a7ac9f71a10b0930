// The ledger: a forward pass as groups of lines, and every total that follows from them.
// Twin of ledger/groups.py, ledger/evaluated.py and accounts/memory.py. Counts are BigInts.

import * as einsum from "./einsum.js";
import * as lines from "./lines.js";
import * as storage from "./storage.js";

export const LARGEST = 10n ** 12n;

// The groups of one way, with the numbers of their sizes: `sizes` are the model's, by axis.
export function sized(way, sizes) {
	const groups = way.groups.map(group => ({
		...group,
		axis: typeof group.count === "string" ? group.count : null,
		count: einsum.value(group.count, sizes),
		axes: Object.fromEntries(Object.entries(group.axes).map(([axis, size]) => [axis, einsum.value(size, sizes)])),
	}));
	return { form: way.form, groups, experts: groups.some(group => group.lines.some(isExperts)) };
}

const isExperts = line => lines.isProduct(line) && line.expert_axis;

// Sizes of all axes in a step. In a window, S is the number of keys seen, or with `cached` of those in the cache.
export function bound(group, at, cached = false) {
	const axes = { ...group.axes, ...at };
	if (lines.CHUNK in group.axes) {
		axes[einsum.CHUNKS] = einsum.chunks(at.T, at.S, group.axes[lines.CHUNK]);
		axes[einsum.ONE_BY_ONE] = einsum.oneByOne(at.T, at.S);
	}
	if (lines.FRONT in group.axes) axes[einsum.PATCHES] = at.T - group.axes[lines.FRONT];
	for (const [share, size] of Object.entries(einsum.SHARES)) {
		if (size in group.axes) axes[share] = (axes[einsum.PATCHES] ?? at.T) / group.axes[size];
	}
	for (const [kind, rate] of Object.entries(einsum.RATES)) {
		if (rate in group.axes) Object.assign(axes, compressed(kind, at, group.axes[rate]));
	}
	if (lines.LONGEST in group.axes) {
		const read = group.lines.some(line => line.path.startsWith("encoder.")) ? at.I : at.T;
		const padded = einsum.roundedUp(read, group.axes[lines.LONGEST]) * group.axes[lines.LONGEST];
		axes[einsum.PADDED] = padded;
		if (lines.HALF in group.axes) {
			axes[einsum.HALVES] = padded / group.axes[lines.HALF];
			axes[einsum.OVERLAPPING] = axes[einsum.HALVES] - einsum.smaller(axes[einsum.HALVES], 1n);
		}
	}
	if (lines.WINDOW in group.axes) {
		const window = group.axes[lines.WINDOW];
		axes[lines.POSITIONS] = at.S;
		axes.S = cached ? einsum.smaller(at.S, window) : einsum.seen(at.T, at.S, window);
	}
	return axes;
}

// Axes that a step binds if tokens are compressed.
function compressed(kind, at, rate) {
	const entries = at.S / rate,
		found = { entries, made: entries - (at.S - at.T) / rate, waiting: at.S % rate, any: einsum.smaller(entries, 1n) };
	return Object.fromEntries(Object.entries(einsum.COMPRESSED[kind]).map(([what, axis]) => [axis, found[what]]));
}

// Of several ways the one that takes fewer FLOPs in a step; the first if both take the same.
export function settled(ways, at, masked = false) {
	return ways.reduce((best, way) => (totalFlops(way, at, masked) < totalFlops(best, at, masked) ? way : best));
}

// Every product evaluated for a step: m × k × n, how often it runs in all layers, and its FLOPs.
export function products(ledger, at, masked = false) {
	return ledger.groups.flatMap(group => {
		const axes = bound(group, at);
		return group.lines.filter(lines.isProduct).map(line => {
			const dims = lines.dims(line, axes);
			const forward = group.count * lines.flops(line, axes, masked);
			const counted = { line, group, axes, dims: { ...dims, times: group.count * dims.times }, forward };
			return { ...counted, backward: 2n * forward }; // two products, each with as many FLOPs
		});
	});
}

export function totalFlops(ledger, at, masked = false) {
	return einsum.sum(products(ledger, at, masked).map(product => product.forward));
}

// Bytes of operands and result in all layers, each moved once by an unfused kernel.
export function moved(product, weights, activations, experts) {
	const { line, axes, group } = product;
	const parts = lines.operands(line, axes).map(elements => group.count * einsum.wholeBytes(elements, activations));
	if (lines.weightAxes(line) !== null && !lines.idles(line, axes)) {
		const stored = storage.asStored(lines.parameters(line)[0], axes, experts);
		parts[lines.weighsLeft(line) ? 0 : 1] = group.count * weights({ ...stored, copies: lines.touched(line, axes) });
	}
	return { left: parts[0], right: parts[1], written: parts[2], read: parts[0] + parts[1] };
}

// Products with attention as one kernel: it reads queries, keys and values once, writes the result, and no scores
// leave the chip. Keys and values are read as the cache stores them. Twin of the attention in timing/kernels.py.
export function fused(products, cache) {
	const attention = products.filter(({ line }) => lines.weightAxes(line) === null);
	return products.map(product => {
		if (!attention.includes(product)) return product;
		const module = moduleOf(product.line),
			alike = attention.filter(one => one.group === product.group && moduleOf(one.line) === module);
		return isAttention(alike) ? { ...product, kernel: module, moved: fusedBytes(product, alike, cache) } : product;
	});
}

const moduleOf = line => line.path.slice(0, line.path.lastIndexOf("."));
const isScores = ({ line }) => /\.(compressed_)?scores$/.test(line.path);
const isValues = ({ line }) => /\.(compressed_)?values$/.test(line.path);

// Scores and values alone: no fused kernel is known where positions have scores of their own, or states are carried on.
function isAttention(products) {
	return products.some(isScores) && products.every(one => isScores(one) || isValues(one)) && products.some(isValues);
}

function fusedBytes({ line, group, axes, moved }, products, cache) {
	const states = group.lines.filter(one => one.line === "state"),
		operand = einsum.einsum(line.spec).right.join(" ");
	const stored = group.count * storage.stateBytes({ spec: operand }, axes, cache);
	const right = states.length && moved.right ? stored : moved.right;
	if (isScores({ line })) return { left: moved.left, right, written: 0n, read: moved.left + right };
	const scores = products.find(one => isScores(one) && one.line.path === line.path.replace(/values$/, "scores"));
	const keys = einsum.einsum(scores.line.spec).right.join(" ");
	// A latent, or a key that is its own value, is read once for both.
	const once = !/[KN]\b/.test(`${keys} ${operand}`) || (states.length === 1 && states[0].spec === keys);
	const values = once ? 0n : right;
	return { left: 0n, right: values, written: moved.written, read: values };
}

// Every stored tensor once: a weight that two lines share is one tensor; each kind of layer has its own.
export function tensors(ledger) {
	const found = new Map();
	ledger.groups.forEach((group, index) => {
		for (const parameter of group.lines.flatMap(lines.parameters)) {
			const key = parameter.path.includes(".*") ? `${index} ${parameter.path}` : parameter.path;
			if (found.has(key)) continue;
			const elements = einsum.size(group.axes, parameter.axes);
			const experts = parameter.isExpert ? group.axes[parameter.axes[0]] : 1n;
			const met = parameter.idle ? 0n : group.axes[lines.ACTIVE];
			const active = parameter.isExpert ? (elements / experts) * met : elements;
			const stored = storage.asStored(parameter, group.axes, ledger.experts);
			const count = lines.owners(group, parameter.path);
			found.set(key, { path: parameter.path, parameter, elements, active, count, stored });
		}
	});
	return [...found.values()];
}

export function parameters(ledger) {
	return einsum.sum(tensors(ledger).map(tensor => tensor.count * tensor.elements));
}

// Lines of one kind with the sizes of their axes, and how many layers have them.
function each(ledger, kind, at) {
	return ledger.groups.flatMap(group => {
		const axes = bound(group, at, kind === "state");
		const own = group.lines.filter(line => line.line === kind && !line.unused);
		return own.map(line => ({ line, group, axes, count: group.count }));
	});
}

// The cache after the step: elements, and bytes in this width.
export function states(ledger, at, cache) {
	return each(ledger, "state", at).map(({ line, group, axes, count }) => ({
		line,
		group,
		elements: count * einsum.size(axes, einsum.axisNames(line.spec)),
		bytes: count * storage.stateBytes(line, axes, cache),
	}));
}

export function cacheBytes(ledger, at, cache) {
	return einsum.sum(states(ledger, at, cache).map(state => state.bytes));
}

// The longest context whose cache, and that of every shorter one, takes no more than a budget: just before a compressed
// key is full, the tokens that wait for it may take more than it does.
// No context is longer than `limit`, the rows of a stored position embedding.
export function longestContext(ledger, bytes, budget, limit = LARGEST) {
	const rates = Object.values(einsum.RATES).flatMap(rate =>
		ledger.groups.filter(group => rate in group.axes).map(group => group.axes[rate]),
	);
	const nearest = largestThatFits(bytes, budget, limit); // one that fits, where the next does not
	if (rates.length === 0) return nearest;
	const period = rates.reduce(multiple, 1n);
	const fits = context => {
		const first = context > period ? context - period + 1n : 1n;
		for (const rate of new Set(rates))
			for (let full = (first / rate + 1n) * rate; full <= context; full += rate)
				if (bytes(full - 1n) > budget) return false;
		return bytes(context) <= budget;
	};
	let low = nearest,
		high = nearest + 1n;
	while (low > 0n && !fits(low)) [low, high] = [low > period ? low - period : 0n, low];
	while (high - low > 1n) {
		const middle = (low + high) / 2n;
		if (fits(middle)) low = middle;
		else high = middle;
	}
	return low;
}

function multiple(one, other) {
	let [rest, by] = [one, other];
	while (by > 0n) [rest, by] = [by, rest % by];
	return (one / rest) * other;
}

// Bytes that one more token of one sequence adds to the cache.
export function nextTokenBytes(ledger, at, cache) {
	const [now, then] = [at.S, at.S + 1n].map(keys => cacheBytes(ledger, { ...at, B: 1n, S: keys }, cache));
	return then - now;
}

// Elements of the results of pointwise work.
export function pointwise(ledger, at) {
	return each(ledger, "pointwise", at).map(({ line, group, axes, count }) => ({
		line,
		group,
		elements: count * einsum.size(axes, einsum.axisNames(line.spec)),
	}));
}

// Largest n from 0 to `limit` with cost(n) ≤ budget, where the cost never falls; cost(0) is not asked.
export function largestThatFits(cost, budget, limit = LARGEST) {
	let low = 0n,
		high = 1n;
	while (high <= limit && cost(high) <= budget) [low, high] = [high, 2n * high];
	if (high > limit + 1n) high = limit + 1n;
	while (high - low > 1n) {
		const middle = (low + high) / 2n;
		if (cost(middle) <= budget) low = middle;
		else high = middle;
	}
	return low;
}
