// Storage of a model's tensors: a plain width for all, or a format for the matrices. Twin of ledger/storage.py and of
// the formats in ledger/formats.py that a dtype names.

import * as einsum from "./einsum.js";

const WORD = 4n,
	SCALE = 4n;
export const BITS = { fp32: 32, tf32: 32, bf16: 16, fp16: 16, fp8: 8, int8: 8, int4: 4 };
const OUTSIDE = { "lm_head.weight": "head", "embed.weight": "embedding" };
const MATRICES = ["matrix", "expert", "dense"];
const ROLES = { head: "head", embed: "embedding" };

// Bytes of a matrix by its outputs and inputs.
const words = (numbers, bits) => einsum.roundedUp(numbers * bits, 32n);
const blocks = (numbers, size, tensor) => (outputs, inputs) =>
	outputs * einsum.roundedUp(inputs, numbers) * size + tensor;
const scales = (outputs, inputs) => einsum.roundedUp(inputs, 128n) * (2n * outputs + WORD * words(outputs, 4n));
const FORMATS = {
	mxfp4: blocks(32n, 17n, 0n),
	nvfp4: blocks(16n, 9n, 4n),
	awq: (outputs, inputs) => WORD * inputs * words(outputs, 4n) + scales(outputs, inputs),
	gptq: (outputs, inputs) => WORD * words(inputs, 4n) * outputs + scales(outputs, inputs) + WORD * inputs,
	nf4: (outputs, inputs) => {
		const numbers = outputs * inputs,
			shared = einsum.roundedUp(numbers, 64n);
		return einsum.wholeBytes(numbers, 4) + shared + 4n * einsum.roundedUp(shared, 256n);
	},
	"fp8-block": (outputs, inputs) =>
		outputs * inputs + 4n * einsum.roundedUp(outputs, 128n) * einsum.roundedUp(inputs, 128n),
};
export const ALSO = ["", "+head", "+head+embed"];
export const PLAIN = [...Object.keys(BITS), ...Object.keys(FORMATS)];
export const narrow = name => !(BITS[name] >= 16);
export const DTYPES = PLAIN.flatMap(name => (narrow(name) ? ALSO.map(more => name + more) : name));
// Bytes of a block of 32 numbers in llama.cpp's types.
const GGML = { q8_0: 34, q5_1: 24, q5_0: 22, q4_1: 20, q4_0: 18, iq4_nl: 18 },
	BLOCK = 32n;
export const CACHES = [...Object.keys(BITS), "fp8-token", "int8-token", ...Object.keys(GGML)];
export const inBlocks = name => name in GGML;
const TOKENS = ["S", "J", ...Object.values(einsum.COMPRESSED).map(named => named.entries)];

// How weights are stored: the function of a tensor to its bytes.
export function storage(name) {
	const [plain, ...also] = name.split("+"),
		bits = BITS[plain];
	if (bits >= 16) return tensor => einsum.wholeBytes(tensor.copies * tensor.elements, bits);
	// Of a model with experts mxfp4 takes these alone, as gpt-oss is published.
	const takes = new Set([...(plain === "mxfp4" ? ["matrix", "expert"] : MATRICES), ...also.map(one => ROLES[one])]);
	const matrix = FORMATS[plain] ?? ((outputs, inputs) => einsum.wholeBytes(outputs * inputs, bits));
	return tensor =>
		takes.has(tensor.role)
			? tensor.copies * matrix(tensor.elements / tensor.inputs, tensor.inputs)
			: einsum.wholeBytes(tensor.copies * tensor.elements, 16);
}

// How a cache is stored: bits of a block of elements, and bytes of the scale of each vector of a token.
export function width(name) {
	if (inBlocks(name)) return { name, bits: 8 * GGML[name], block: BLOCK, scale: 0n };
	const plain = name.replace("-token", "");
	return { name, bits: BITS[plain], block: 1n, scale: plain === name ? 0n : SCALE };
}

// How a state is stored: in its own dtype, as the cache, or, if no token adds to it, in at least 16 bits.
export function widthOf(line, cache) {
	if (line.bits) return { name: `fp${line.bits}`, bits: line.bits, block: 1n, scale: 0n };
	const grows = einsum.axisNames(line.spec).some(axis => TOKENS.includes(axis));
	return grows || cache.bits >= 16 * Number(cache.block) ? cache : width("bf16");
}

// True if the blocks of the cache divide the vectors of a state.
export function divides(line, axes, cache) {
	const { block } = widthOf(line, cache);
	return block === 1n || axes[einsum.axisNames(line.spec).at(-1)] % block === 0n;
}

// Bytes that a state takes at the end of a step.
export function stateBytes(line, axes, cache) {
	const names = einsum.axisNames(line.spec),
		how = widthOf(line, cache);
	const taken = einsum.wholeBytes(einsum.size(axes, names), how.bits) / how.block;
	return how.scale ? taken + how.scale * einsum.size(axes, names.slice(0, -1)) : taken;
}

// A parameter as a storage format sees it, in a model with or without `experts`.
export function asStored(parameter, axes, experts) {
	const { path } = parameter,
		elements = einsum.size(axes, parameter.axes);
	if (parameter.embedding) return { role: "embedding", elements, inputs: axes[parameter.axes.at(-1)], copies: 1n };
	if (!parameter.inputs.length) return { role: "other", elements, inputs: 1n, copies: 1n };
	const inputs = einsum.size(axes, parameter.inputs);
	if (parameter.isExpert) {
		const [experts, ...matrix] = parameter.axes;
		return { role: "expert", elements: einsum.size(axes, matrix), inputs, copies: axes[experts] };
	}
	const role = path.includes(".*") ? (experts ? "dense" : "matrix") : (OUTSIDE[path] ?? "other");
	return { role, elements, inputs, copies: 1n };
}
