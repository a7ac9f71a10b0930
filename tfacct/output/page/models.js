// The models of the page, from its data.

import * as einsum from "./einsum.js";
import * as ledger from "./ledger.js";

const HUB = "https://huggingface.co/";

const USUAL = { has_cache: 0, logits: 0, kind: "copied", cache_name: "KV cache", expected_from: "published total" };

// Lines, shapes and models as the data has them, each by its number.
export function read(data) {
	const { texts } = data;
	const lines = data.lines.map(line => ({ line: "matmul", ...line }));
	const legends = data.shapes.map(shape => legend(shape, texts));
	const models = data.models.map((given, index) => {
		const facts = named(given, texts),
			shape = data.shapes[facts.shape];
		const sizes = Object.fromEntries(shape.axes.map((axis, at) => [axis, BigInt(facts.sizes[at])]));
		const ways = shape.ways.map(way => ({ form: way.form, groups: groups(way, facts, lines, sizes) }));
		const { formulas, rules } = shape,
			shared = { index, forms: data.forms, sizes, ways, legend: legends[facts.shape], formulas, rules };
		return { ...USUAL, unknown: [], left_out: [], idle: [], set: {}, defaulted: {}, ...facts, ...shared };
	});
	const record = { schema: data.schema, nullKeys: data.null_keys };
	return { models, devices: data.devices.map(device), usable: data.usable, start: data.start, record };
}

// A model's facts, with texts for their numbers.
function named(given, texts) {
	const facts = { ...given, uncounted: texts[given.uncounted] };
	for (const name of ["warnings", "notes", "counted"]) facts[name] = (facts[name] ?? []).map(number => texts[number]);
	if ("expected_from" in facts) facts.expected_from = texts[facts.expected_from];
	if (facts.url && !facts.url.startsWith("https://")) facts.url = HUB + facts.url;
	return facts;
}

// What was counted as FLOPs: all pairs or masked ones, and logits if the model has any.
export function convention(model, { masked, last, train }) {
	const text = model.counted[(masked ? 2 : 0) + (last ? 1 : 0)];
	return train ? `${text}; backward 2 × forward` : text;
}

function legend(shape, texts) {
	return Object.fromEntries(shape.legend.map(number => texts[number].split("\t")));
}

function groups(way, model, lines, sizes) {
	let stacks = 0;
	return way.groups.map(group => {
		const own = group.lines.map(number => lines[number]);
		const blocks =
			group.count === undefined ? "" : (model.blocks?.[stacks++] ?? spans(sizes[group.count] ?? BigInt(group.count)));
		return { kind: "", names: {}, once: false, count: 1, ...group, blocks, axes: axes(group, own), lines: own };
	});
}

function spans(count) {
	return count === 1n ? "0" : `0-${count - 1n}`;
}

// Sizes of a group's axes as they are written; an axis that is not named is the model's own.
function axes(group, lines) {
	const found = { ...group.axes };
	for (const line of lines) {
		for (const text of [line.spec, line.weight && line.line === "pointwise" ? line.weight : "", line.expert_axis ?? ""]) {
			for (const axis of text.match(/[A-Z][a-z]*[0-9]*/g) ?? []) found[axis] ??= group.names?.[axis] ?? axis;
		}
	}
	const bound = ["Nc", "Tr", "Ti", ...einsum.BOUND];
	for (const axis of [..."BTSOIJ", ...bound]) delete found[axis];
	return found;
}

// Bytes that a model may take of a device: `serving` and `training`.
function device([id, name, memory, serving, training, ridge, others]) {
	return { id, name, memory: BigInt(memory), serving: BigInt(serving), training: BigInt(training), ridge, others };
}

// The ways of a model at sizes that differ from its own, and which of them a form names.
export function ways(model, changed, form) {
	const sizes = { ...model.sizes, ...changed };
	const all = model.ways.map(way => ledger.sized(way, sizes));
	const named = form === null ? all.filter(way => way.form !== "unpacked") : all.filter(way => way.form === form);
	return { sizes, ways: named };
}

export const forms = model => model.ways.map(way => way.form).filter(Boolean);

// Numbers of key/value heads that the query heads can share, where a model has one number of them.
export function sharings(model) {
	const { K, G } = model.sizes;
	if (K === undefined || G === undefined) return [];
	const heads = K * G,
		found = [];
	for (let n = 1n; n <= heads && n <= 4096n; n += 1n) if (heads % n === 0n) found.push(n);
	return found.length > 1 ? found : [];
}
