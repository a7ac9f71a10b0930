// The notation: products as einsums over named axes, and the arithmetic of counting.
// Twin of ledger/einsum.py. Every size is a BigInt: a double is wrong from 2^53 on.

export const WORKLOAD = ["B", "T", "S", "O", "I", "J"];
export const CHUNKS = "Nc";
export const ONE_BY_ONE = "Tr";
export const PATCHES = "Ti";
// Axes that a step binds to its tokens divided by a size, and the axis of that size.
export const SHARES = { Tm: "Mp", Nw: "Wp" };
// Axes that a step binds where tokens are compressed, lightly or heavily, and the axis of the tokens in a key.
export const RATES = { light: "Mc", heavy: "Mh" };
export const COMPRESSED = {
	light: { entries: "Sc", made: "Tc", waiting: "Zc", any: "Uc" },
	heavy: { entries: "Sh", made: "Th", waiting: "Zh" },
};
const OF_KEYS = Object.values(COMPRESSED).flatMap(named => Object.values(named));
// Axes that a step binds where a source is padded to whole windows that overlap: its tokens, halves and windows.
export const PADDED = "Ip";
export const HALVES = "Ih";
export const OVERLAPPING = "Iw";
// All axes that a step binds, without those of the workload.
export const BOUND = [...Object.keys(SHARES), ...OF_KEYS, PADDED, HALVES, OVERLAPPING];
const OF_STEPS = new Set([...WORKLOAD, CHUNKS, ONE_BY_ONE, PATCHES, "Sp", ...BOUND]);

const parsed = new Map();

// `B T D, D N H -> B T N H`: the axes of both operands, of the result, and each of them once.
export function einsum(spec) {
	if (!parsed.has(spec)) {
		const [left, right, out] = spec.split(/,|->/).map(axisNames);
		parsed.set(spec, { left, right, out, every: [...new Set([...left, ...right, ...out])] });
	}
	return parsed.get(spec);
}

export function axisNames(spec) {
	return spec.split(" ").filter(Boolean);
}

// A spec with other names for some of its axes.
export function renamed(spec, names) {
	return spec.replace(/[A-Z][a-z]*[0-9]*/g, axis => names[axis] ?? axis);
}

// A written size: a number, or a sum of products of axes such as `2*Km*Gm+Km`.
export function value(size, sizes) {
	if (typeof size === "number") return BigInt(size);
	return sum(size.split("+").map(product => prod(product.split("*").map(factor => number(factor, sizes)))));
}

function number(factor, sizes) {
	return /^[0-9]+$/.test(factor) ? BigInt(factor) : sizes[factor];
}

export function sum(numbers) {
	return numbers.reduce((total, one) => total + one, 0n);
}

export function prod(numbers) {
	return numbers.reduce((product, one) => product * one, 1n);
}

// Number of elements of an operand with these axes.
export function size(axes, names) {
	return prod(names.map(name => axes[name]));
}

export function smaller(one, other) {
	return one < other ? one : other;
}

// BigInt division cuts towards zero; nothing that is divided here is negative.
export function roundedUp(whole, parts) {
	return (whole + parts - 1n) / parts;
}

export function wholeBytes(elements, bits) {
	return roundedUp(elements * BigInt(bits), 8n);
}

// An operand that carries no axis of the workload is stored.
export function isWeight(operand) {
	return !operand.some(axis => OF_STEPS.has(axis));
}

// Tokens that are merged into one, and the extra tokens that never are.
export function multiple(sizes) {
	const common = (one, other) => (other === 0n ? one : common(other, one % other));
	const every = Object.values(SHARES)
		.filter(size => size in sizes)
		.reduce((least, size) => (least * sizes[size]) / common(least, sizes[size]), 1n);
	return { every, extra: every > 1n ? (sizes.Xc ?? 0n) : 0n };
}

// Tokens rounded up to a multiple of what is taken together.
export function together(tokens, sizes) {
	const { every, extra } = multiple(sizes);
	return roundedUp(tokens - extra, every) * every + extra;
}

// Keys that new tokens meet in a window: their own, and the old ones that the first of them sees.
export function seen(queries, keys, window) {
	return queries + smaller(keys - queries, window - 1n);
}

// New tokens that a recurrence takes one by one: the token of a decode step, and no others.
export function oneByOne(queries, keys) {
	return (1n - smaller(queries - 1n, 1n)) * smaller(keys - queries, 1n);
}

// Chunks that new tokens are padded to; none in a decode step.
export function chunks(queries, keys, length) {
	return roundedUp(queries, length) * (1n - oneByOne(queries, keys));
}

// Query–key pairs that a mask keeps, for the last `queries` positions of `keys`.
export function pairs(mask, queries, keys, window) {
	if (mask === "full") return queries * keys;
	if (mask === "chunks" && window !== undefined) return within(keys, window) - within(keys - queries, window);
	if (mask === "near" && window !== undefined) {
		const before = (window - 1n) / 2n + 1n; // a query's own key is in both halves
		const after = window + 1n - before;
		return pairs("causal", queries, keys, before) + pairs("causal", queries, queries, after) - queries;
	}
	if (window === undefined) return (queries * (2n * keys - queries + 1n)) / 2n;
	return first(keys, window) - first(keys - queries, window);
}

// Pairs of the last positions with compressed keys that are full before them, at most so many of each.
export function compressedPairs(queries, keys, rate, most) {
	const first = positions => {
		const whole = positions / rate,
			seen = most === undefined ? whole : smaller(whole, most);
		return (rate * seen * (seen - 1n)) / 2n + seen * (positions - seen * rate + 1n);
	};
	return first(keys) - first(keys - queries);
}

function within(positions, window) {
	const whole = positions / window,
		rest = positions - whole * window;
	return (whole * window * (window + 1n)) / 2n + (rest * (rest + 1n)) / 2n;
}

function first(positions, window) {
	const growing = smaller(positions, window);
	return (growing * (growing + 1n)) / 2n + (positions - growing) * window;
}
