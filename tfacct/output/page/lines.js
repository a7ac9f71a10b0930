// One line of the ledger: a matrix product, embedding, state or pointwise line. Twin of ledger/lines.py.

import * as einsum from "./einsum.js";

const MULTIPLY_ADD = 2n;
export const WINDOW = "W";
const AROUND = "Wb";
const CHOSEN = "Sx";
export const POSITIONS = "Sp";
export const ACTIVE = "A";
export const CHUNK = "Pc";
export const FRONT = "Xc";
// Half a window that overlaps the next, and the longest window of all layers.
export const HALF = "Wo";
export const LONGEST = "Wl";
// Axes of tokens that are not axes of the workload.
const IN_WINDOWS = ["Wp", HALF, "Wf", "Ip"];
// Masks of compressed keys: those that are full before a query, and at most so many of them as an indexer chooses.
const COMPRESSED = ["entries", "chosen entries"];

// A line that never runs is no product, but its parameters count.
export function isProduct(line) {
	return line.line === "matmul" && !line.unused;
}

// Axes of the stored operand of a product; null if both are activations.
export function weightAxes(line) {
	const { left, right } = einsum.einsum(line.spec);
	return [right, left].find(einsum.isWeight) ?? null;
}

// Axes of the pairs that a mask leaves: I and J in an encoder of a decoder, else T and S.
export function queriesAndKeys(line) {
	const { every } = einsum.einsum(line.spec);
	const entries = every.find(axis => axis === "Sc" || axis === "Sh");
	if (COMPRESSED.includes(line.mask)) return ["T", entries];
	return line.mask === "near" && every.includes("I") && every.includes("J") ? ["I", "J"] : ["T", "S"];
}

// Factors of the FLOPs: 2 per multiply-add, and every axis once, or for two of them the pairs that a mask leaves.
export function factors(line, axes, masked) {
	const { every } = einsum.einsum(line.spec);
	if (!masked || !line.mask) return [MULTIPLY_ADD, ...every.map(axis => axes[axis])];
	const [queries, keys] = queriesAndKeys(line);
	const others = every.filter(axis => axis !== queries && axis !== keys).map(axis => axes[axis]);
	if (COMPRESSED.includes(line.mask)) {
		const rate = axes[einsum.RATES[keys === "Sc" ? "light" : "heavy"]],
			most = line.mask === "chosen entries" ? axes[CHOSEN] : undefined;
		const pairs = einsum.compressedPairs(axes[queries], axes[POSITIONS] ?? axes.S, rate, most);
		return [MULTIPLY_ADD, pairs, ...others];
	}
	const window = axes[{ near: AROUND, chosen: CHOSEN }[line.mask] ?? WINDOW];
	const seen = line.mask === "chunks" ? (axes[POSITIONS] ?? axes[keys]) : axes[keys];
	return [MULTIPLY_ADD, einsum.pairs(line.mask, axes[queries], seen, window), ...others];
}

export function flops(line, axes, masked) {
	return einsum.prod(factors(line, axes, masked));
}

// Sizes m, k and n, and how often this multiplication runs.
export function dims(line, axes) {
	const { left, right, out } = einsum.einsum(line.spec);
	const alone = left.filter(axis => out.includes(axis) && !right.includes(axis));
	const ofSteps = alone.filter(axis => einsum.WORKLOAD.includes(axis) || IN_WINDOWS.includes(axis));
	const stored = einsum.isWeight(right) && !line.expert_axis; // each of a token's experts is a matrix product of its own
	const rows = stored || !ofSteps.length ? alone : ofSteps;
	const columns = right.filter(axis => out.includes(axis) && !left.includes(axis));
	const contracted = left.filter(axis => !out.includes(axis));
	const repeats = out.filter(axis => !rows.includes(axis) && !columns.includes(axis));
	const [m, k, n, times] = [rows, contracted, columns, repeats].map(names => einsum.size(axes, names));
	return { m, k, n, times };
}

// True if an axis is 0, so that there is nothing to multiply.
export function idles(line, axes) {
	return einsum.einsum(line.spec).every.some(axis => axes[axis] === 0n);
}

// Largest number of experts whose weights a step can read; 1 if the line has no experts.
export function touched(line, axes) {
	if (!line.expert_axis) return 1n;
	const workload = einsum.einsum(line.spec).out.filter(axis => einsum.WORKLOAD.includes(axis));
	return einsum.smaller(axes[line.expert_axis], einsum.size(axes, [...workload, ACTIVE]));
}

// Elements of operands and result.
export function operands(line, axes) {
	if (idles(line, axes)) return [0n, 0n, 0n];
	const { left, right, out } = einsum.einsum(line.spec);
	return [left, right, out].map(
		operand => einsum.size(axes, operand) * (einsum.isWeight(operand) ? touched(line, axes) : 1n),
	);
}

export function weighsLeft(line) {
	const { left, right } = einsum.einsum(line.spec);
	return einsum.isWeight(left) && !einsum.isWeight(right);
}

// Stored tensors of a line by their names in the model, with their axes and those that a matrix is multiplied along.
export function parameters(line) {
	if (line.line === "matmul") return ofProduct(line);
	if (line.line === "embedding") {
		const axes = einsum.axisNames(line.spec);
		return [{ path: `${line.path}.weight`, axes, embedding: Boolean(line.embedding), inputs: [] }];
	}
	if (line.line === "state") return [];
	const owner = line.module ?? line.path;
	return ["weight", "bias"]
		.filter(name => line[name])
		.map(name => ({ path: `${owner}.${name}`, axes: einsum.axisNames(line[name]), inputs: [] }));
}

function ofProduct(line) {
	const axes = weightAxes(line);
	if (axes === null) return [];
	const experts = line.expert_axis ? [line.expert_axis] : [],
		isExpert = Boolean(line.expert_axis);
	const owner = line.weight ?? line.path,
		idle = Boolean(line.unused);
	const found = [{ path: `${owner}.weight`, axes: [...experts, ...axes], isExpert, inputs: inputs(line, axes), idle }];
	if (line.bias) {
		const { out } = einsum.einsum(line.spec);
		const outputs = axes.filter(axis => out.includes(axis));
		found.push({ path: `${line.path}.bias`, axes: [...experts, ...outputs], isExpert, inputs: [], idle });
	}
	return found;
}

// The axes of what only weighs, as ledger/lines.py has them.
const NO_MATRIX = ["E", "U", "Er", "Xw", "Xk"];

// Axes of the weight that are its module's input; a tied head is read transposed.
function inputs(line, weight) {
	const { left, out } = einsum.einsum(line.spec);
	const results = weight.filter(axis => out.includes(axis));
	if (!results.some(axis => ![...left, ...NO_MATRIX].includes(axis))) return [];
	return results.includes(weight[0]) ? weight.slice(0, 1) : weight.filter(axis => !results.includes(axis));
}

// Number of layers with tensors of their own; 1 if all share them.
export const owners = (group, path) =>
	group.once || group.shared?.some(name => `${path}.`.includes(`*.${name}.`)) ? 1n : group.count;
