// From the state of the knobs to numbers: a model at a step, and everything that the panels show.

import * as einsum from "./einsum.js";
import * as ledger from "./ledger.js";
import * as lines from "./lines.js";
import * as models from "./models.js";
import * as paths from "./paths.js";
import * as storage from "./storage.js";

// Sizes of the axes that a step binds, as the command line would bind them.
export function axes(model, state) {
	const asked = model.fixed ? null : state.ctx; // an image encoder has the context of its images
	const S = einsum.together(asked ?? BigInt(model.context), { ...model.sizes, ...state.sizes });
	const fresh = state.step === "decode" ? 1n : state.step === "chunk" ? einsum.smaller(state.tokens, S) : S;
	const T = model.has_cache ? fresh : S;
	const J = model.source ? (state.source ?? BigInt(model.source)) : 0n;
	return { B: state.batch, T, S, O: state.last && model.logits ? 1n : T, I: T === S ? J : 0n, J };
}

// The sizes that the knobs change: K and G together, and single axes.
export function changed(model, state) {
	if (state.shared === null) return state.sizes;
	const heads = model.sizes.K * model.sizes.G;
	return { K: state.shared, G: heads / state.shared, ...state.sizes };
}

// Longest context that a stored position embedding has rows for, in a model whose rows may have been changed.
function positionLimit(model, sizes) {
	if (!model.positions) return ledger.LARGEST;
	return BigInt(model.positions) + (model.sizes.P === undefined ? 0n : sizes.P - model.sizes.P);
}

// True if a step can run and its memory fits so many bytes.
export const fits = ({ at, limit, memory }, usable) => at.S <= limit && memory <= usable;

// Dtype of the weights; null for a model whose weights are stored quantized, until one is chosen.
export function dtype(model, state) {
	return state.dtype ?? (model.quantized ? null : "bf16");
}

// Dtype of the cache: that of the activations, which are bf16 with quantized weights.
export function cacheDtype(state) {
	return state.cache ?? activations(state.dtype ?? "bf16");
}

// True if the cache of a model can be stored in a dtype: vectors must divide into its blocks.
export function stores(model, state, name) {
	if (!storage.inBlocks(name)) return true;
	const groups = models.ways(model, changed(model, state), state.form).ways.flatMap(way => way.groups);
	const divides = (line, axes) => line.line !== "state" || storage.divides(line, axes, storage.width(name));
	return groups.every(group => group.lines.every(line => divides(line, group.axes)));
}

export const activations = name => (storage.BITS[name] >= 16 ? name : "bf16");

// Everything about a model at these knobs.
export function count(model, state) {
	const at = axes(model, state);
	const { sizes, ways } = models.ways(model, changed(model, state), state.form);
	const way = ledger.settled(ways, at, state.masked);
	const name = dtype(model, state),
		weights = storage.storage(name ?? "bf16"),
		cache = storage.width(cacheDtype(state));
	const width = storage.BITS[activations(name ?? "bf16")];
	const unfused = ledger
		.products(way, at, state.masked)
		.map(product => ({
			...product,
			name: paths.component(product.line),
			flops: state.train ? product.forward + product.backward : product.forward,
			moved: ledger.moved(product, weights, width, way.experts),
		}));
	const products = state.unfused ? unfused : ledger.fused(unfused, cache);
	const tensors = ledger.tensors(way),
		states = ledger.states(way, at, cache);
	const flops = einsum.sum(products.map(product => product.flops));
	const params = einsum.sum(tensors.map(one => one.count * one.elements));
	const active = einsum.sum(tensors.map(one => one.count * one.active));
	const bytes = einsum.sum(tensors.map(one => one.count * weights(one.stored)));
	const cached = einsum.sum(states.map(one => one.bytes));
	return {
		...{ model, state, at, sizes, way, ways, products, tensors, states, weights, cache },
		dtype: name,
		fused: products.some(product => product.kernel),
		kernels: kernels(products),
		...{ flops, params, active, bytes, cached },
		memory: bytes + cached,
		limit: positionLimit(model, sizes),
		tokens: at.B * at.T,
		rule: 2n * (state.train ? 3n : 1n) * active * at.B * at.T,
		next: ledger.nextTokenBytes(way, at, cache),
		moved: einsum.sum(products.map(product => product.moved.read + product.moved.written)),
	};
}

// What runs as one kernel: a product, or the scores and values of fused attention.
function kernels(products) {
	const found = [];
	for (const product of products) {
		const { line, group, name, kernel, forward, moved } = product;
		const bytes = moved.read + moved.written,
			path = kernel ? `${kernel}.attention` : line.path;
		const known = kernel && found.find(one => one.path === path && one.group === group);
		if (!known) found.push({ path, group, name, forward, bytes, products: [product] });
		else {
			known.forward += forward;
			known.bytes += bytes;
			known.products.push(product);
		}
	}
	return found;
}

// First context at which scores and values take more FLOPs than everything else; null if there is none. Of a chunk the
// new tokens stay while the context grows; otherwise the whole context is new.
export function overtakes({ state, at, ways, sizes }) {
	const chunk = state.step !== "prefill",
		before = chunk ? at.T - 1n : 0n,
		{ every: each, extra } = einsum.multiple(sizes); // patches that are taken together
	const ahead = more => {
		const S = (before + more) * each + extra,
			T = chunk ? at.T : S,
			there = { ...at, S, T, O: state.last ? at.O : T };
		const found = ledger.products(ledger.settled(ways, there, state.masked), there, state.masked);
		const scores = found.filter(product => paths.component(product.line) === "attn_scores_values");
		return 2n * einsum.sum(scores.map(one => one.forward)) - einsum.sum(found.map(one => one.forward));
	};
	const last = before + ledger.largestThatFits(ahead, 0n);
	return last < ledger.LARGEST ? (last + 1n) * each + extra : null;
}

// Sums by component, in the order of the ledger: [name, number] pairs.
export function summed(rows, name, number) {
	const found = new Map();
	for (const row of rows) found.set(name(row), (found.get(name(row)) ?? 0n) + number(row));
	return [...found].filter(([, total]) => total > 0n);
}

// The four bars: parameters, FLOPs, bytes moved and memory.
export function shares(counted) {
	const { products, tensors, cached, weights } = counted;
	const part = tensor => paths.heading(tensor.path);
	const stored = summed(tensors, part, one => one.count * weights(one.stored));
	const moved = product => product.moved.read + product.moved.written,
		named = product => product.name;
	return [
		{ title: "Parameters", unit: "people", parts: summed(tensors, part, one => one.count * one.elements) },
		{ title: "FLOPs", unit: "si", parts: summed(products, named, one => one.flops) },
		{ title: "Bytes moved", unit: "binary", parts: summed(products, named, moved), forward: true },
		{ title: "Memory", unit: "binary", parts: cached ? [...stored, ["cache", cached]] : stored, stored: true },
	];
}

// Products as tables and JSON show them: those of equal sizes in several kinds of layers are one row.
export function shown(products) {
	const byPath = new Map();
	for (const product of products) {
		const rows = byPath.get(product.line.path) ?? [];
		byPath.set(product.line.path, rows);
		const known = rows.findIndex(row => alike(row, product));
		if (known < 0) rows.push({ ...product, kind: product.group.kind, count: product.group.count });
		else rows[known] = together(rows[known], product);
	}
	return [...byPath.values()].flatMap(rows => rows.map(row => ({ ...row, kind: rows.length > 1 ? row.kind : "" })));
}

function alike(row, product) {
	const [one, other] = [row, product].map(p => {
		const each = p.forward / (p.count ?? p.group.count);
		return [p.dims.m, p.dims.k, p.dims.n, each, ...lines.operands(p.line, p.axes)].join();
	});
	return one === other && JSON.stringify(row.line) === JSON.stringify(product.line);
}

function together(row, product) {
	const { read, written, left, right } = row.moved,
		more = product.moved;
	return {
		...row,
		kind: [row.kind, product.group.kind].filter(Boolean).join(" and "),
		count: row.count + product.group.count,
		dims: { ...row.dims, times: row.dims.times + product.dims.times },
		forward: row.forward + product.forward,
		backward: row.backward + product.backward,
		flops: row.flops + product.flops,
		moved: { read: read + more.read, written: written + more.written, left: left + more.left, right: right + more.right },
	};
}
