// Paths of lines in a model, and the heading that a count is summed under. Twin of ledger/paths.py.

import * as einsum from "./einsum.js";

// Side, stack, number, part and leaf of a path, each empty if it has none.
export function parse(path) {
	const words = path.split(".");
	const side = words[0] === "encoder" && words.length > 1 ? words.shift() : "";
	const stacked = (words[0] === "blocks" || words[0] === "mtp") && words.length > 1;
	const [stack, number] = stacked ? words.splice(0, 2) : ["", ""];
	const [part, ...leaf] = words;
	return { side, stack, number, part, leaf: leaf.join(".") };
}

// Heading of a path: its part's name, one for all norms, one for a whole encoder or all MTP heads.
export function heading(path) {
	const { side, stack, part } = parse(path);
	if (side || stack === "mtp") return side || stack;
	return part.endsWith("_norm") ? "norms" : part;
}

// Component of a product: its heading, except that self-attention is two: projections, and scores with values.
export function component(line) {
	const found = heading(line.path);
	if (found !== "attn") return found;
	const { every } = einsum.einsum(line.spec);
	const keys = ["S", "Sc", "Sh"].some(axis => every.includes(axis)); // compressed ones too
	const pairs = (every.includes("T") && keys) || ["Nw", "Iw", "Ih"].some(axis => every.includes(axis)); // of windows
	return pairs ? "attn_scores_values" : "attn_projections";
}

// Short path: `attn.q_proj` for `blocks.*.attn.q_proj`.
export function short(path) {
	const { side, stack, number, part, leaf } = parse(path);
	if (number !== "*") return path;
	return [side, stack === "mtp" ? stack : "", part, leaf].filter(Boolean).join(".");
}

const WORDS = {
	attn: "attention",
	attn_projections: "attention projections",
	attn_scores_values: "scores + values",
	cross: "cross-attention",
	mlp: "MLP",
	lm_head: "output head",
	embed: "embedding",
	pos_embed: "position embedding",
	norms: "norms",
	encoder: "encoder",
	mtp: "multi-token prediction",
	type_embed: "segment embedding",
	task_embed: "task embedding",
	rel_bias: "relative positions",
};

export function words(name) {
	return WORDS[name] ?? name.replaceAll("_", " ");
}

const HUES = {
	attn: "attention",
	attn_projections: "attention",
	attn_scores_values: "scores",
	cross: "cross",
	mlp: "mlp",
	lm_head: "head",
	embed: "embed",
	pos_embed: "embed",
	type_embed: "embed",
	task_embed: "embed",
	norms: "norms",
	encoder: "encoder",
	mtp: "mtp",
	cache: "scores",
};

// Name of the colour of a component: a class in the style.
export function hue(name) {
	return HUES[name] ?? "mixer";
}
