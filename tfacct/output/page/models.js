// The models of the page: the data that stands in it, with what they share put back together.

import * as ledger from "./ledger.js";

const HUB = "https://huggingface.co/";

// Lines, shapes and models as the data has them, each by its number.
export function read(data) {
	const lines = data.lines.map(line => ({ line: "product", ...line }));
	const legends = data.shapes.map(shape => legend(shape, data.texts));
	const text = numbers => (numbers ?? []).map(number => data.texts[number]);
	const models = data.models.map((model, index) => {
		const shape = data.shapes[model.shape];
		const sizes = Object.fromEntries(shape.letters.map((letter, at) => [letter, BigInt(model.sizes[at])]));
		const ways = shape.ways.map(way => ({ form: way.form, groups: groups(way, model, lines, sizes) }));
		return {
			unknown: [],
			left_out: [],
			idle: [],
			set: {},
			defaulted: {},
			keeps: false,
			logits: false,
			kind: "copied",
			kept: "KV cache",
			...model,
			witness: data.texts[model.witness] ?? "published total",
			index,
			sizes,
			ways,
			legend: legends[model.shape],
			formulas: shape.formulas,
			warnings: text(model.warnings),
			notes: text(model.notes),
			conventions: data.texts[model.conventions].split("\n"),
			url: model.url && !model.url.startsWith("https://") ? HUB + model.url : model.url,
		};
	});
	return { models, devices: data.devices.map(device), start: data.start };
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

// Sizes of a group's letters as they are written; a letter that is not named is the model's own.
function axes(group, lines) {
	const found = { ...group.axes };
	for (const line of lines) {
		for (const text of [line.spec, line.weight && line.line === "pointwise" ? line.weight : "", line.bank ?? ""]) {
			for (const axis of text.match(/[A-Z][a-z]*[0-9]*/g) ?? []) found[axis] ??= group.names?.[axis] ?? axis;
		}
	}
	for (const axis of [..."BTSOIJ", "Nc", "Tr", "Ti"]) delete found[axis];
	return found;
}

function device([id, name, memory, bandwidth, peak, marketed]) {
	return { id, name, memory: BigInt(memory), bandwidth, peak, marketed };
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
