// The command that prints the same number, and its JSON.

import * as count from "./count.js";
import * as einsum from "./einsum.js";
import * as ledger from "./ledger.js";
import * as models from "./models.js";
import * as numbers from "./numbers.js";

// The command that prints these FLOPs; a line of Python if no config field gives the changed size.
export function command(model, state) {
	const changed = Object.keys(state.sizes).length > 0;
	return changed || (state.shared !== null && !model.shared) ? python(model, state) : shell(model, state);
}

function shell(model, state) {
	const at = count.axes(model, state),
		options = [];
	if (state.ctx !== null) options.push("--ctx", at.S);
	if (state.step === "decode") options.push("--decode");
	if (state.step === "chunk") options.push("--tokens", at.T);
	if (at.B !== 1n) options.push("--batch", at.B);
	if (state.source !== null) options.push("--source", state.source);
	if (state.last) options.push("--logits", "last");
	if (state.masked) options.push("--masked");
	if (state.train) options.push("--train");
	return typed("flops", model, options, sets(model, state));
}

// A command as it is typed: its options, and the fields that it sets.
export function typed(name, model, options, fields = model.set) {
	const set = Object.entries(fields).flatMap(([field, value]) => [
		"--set",
		quoted(`${field}=${typeof value === "string" ? value : JSON.stringify(value, digits)}`),
	]);
	return ["tfacct", name, quoted(model.name), ...options, ...set].join(" ");
}

// Fields that differ from the published config: those of `--set`, and those of the knobs.
function sets(model, state) {
	const found = { ...model.set };
	if (state.shared !== null) found[model.shared] = state.shared;
	if (state.form !== null) found[model.form] = state.form;
	return found;
}

const digits = (_, value) => (typeof value === "bigint" ? Number(value) : value);

function quoted(text) {
	return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function python(model, state) {
	const at = count.axes(model, state),
		fields = Object.entries({ ...model.set });
	if (state.form !== null) fields.push([model.form, state.form]);
	const knobs = [`ctx=${at.S}`];
	if (at.T !== at.S) knobs.push(`tokens=${at.T}`);
	if (at.B !== 1n) knobs.push(`batch=${at.B}`);
	if (state.source !== null) knobs.push(`source=${state.source}`);
	if (state.shared !== null) knobs.push(`num_key_value_heads=${state.shared}`);
	for (const [axis, size] of Object.entries(state.sizes)) knobs.push(`${axis}=${size}`);
	if (state.last) knobs.push('logits="last"');
	if (state.masked) knobs.push("masked=True");
	if (state.train) knobs.push("train=True");
	const given = fields.map(([name, value]) => `, ${name}=${literal(value)}`).join("");
	return `load(${JSON.stringify(model.name)}${given}).evaluate("total_flops", exact=True, ${knobs.join(", ")})`;
}

function literal(value) {
	if (value === null) return "None";
	return typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value);
}

// The answer: the total, per token, and relative to the rule of thumb.
export function answer(counted) {
	const { flops, tokens, rule, state, active, params } = counted;
	const thumb = `${state.train ? "6" : "2"}·${active === params ? "params" : "active"}·tokens`;
	const each = tokens > 1 ? ` (${numbers.si(numbers.rounded(flops, tokens))} per token)` : "";
	return `${numbers.si(flops)} FLOPs${each}, ${numbers.decimals(flops, rule, 2)} times ${thumb}.`;
}

// What `tfacct flops --json` prints, with its notes. `record`: its schema, and the keys that are null
// here because no knob of the page asks for them.
export function document(counted, notes, record) {
	const { model, state } = counted;
	return {
		schema: record.schema,
		command: "flops",
		answer: answer(counted),
		convention: models.convention(model, state),
		models: [facts(counted, notes, record)],
		models_skipped: [],
	};
}

function facts(counted, notes, record) {
	const { model, state, at, flops, tokens, rule, way } = counted;
	const named = { model: model.name, family: model.family, set: sets(model, state), defaulted: left(model, state) };
	const workload = { batch: at.B, tokens: at.T, keys: at.S, source: at.J || null };
	const logits = model.logits ? (state.last ? "last" : "all") : null;
	const known = {
		...named,
		unknown: model.unknown,
		left_out: model.left_out,
		notes: notes.map(note => note.text),
		note_keys: notes.map(note => note.key),
		workload: { ...workload, logits, masked: state.masked, dtype: null },
		train: state.train,
		recompute: "none",
		recomputed_flops: 0n,
		total_flops: flops,
		active_params: counted.active,
		rule_of_thumb_flops: rule,
		flops_per_token: fraction(flops, tokens),
		total_params: counted.params,
		latent_attention: way.form ?? model.built_form ?? null,
		components: components(counted.products),
		lines: count.shown(counted.products).map(product => row(product, state)),
		never_called: model.idle,
		total_flops_if_called: ifCalled(counted),
	};
	const nulls = record.nullKeys.filter(key => !(key in known)).map(key => [key, null]);
	const axisNames = Object.keys(state.sizes).length ? { axes: state.sizes } : {};
	return { ...known, ...Object.fromEntries(nulls), ...axisNames };
}

function components(products) {
	const found = {};
	for (const { name, flops } of products) found[name] = (found[name] ?? 0n) + flops;
	return found;
}

// Fields that are still left to the class's defaults.
export function left(model, state) {
	const set = sets(model, state);
	return Object.fromEntries(Object.entries(model.defaulted).filter(([field]) => !(field in set)));
}

function row({ line, group, kind, dims, forward, backward, flops }, state) {
	const { m, k, n, times } = dims;
	const both = state.train ? { forward_flops: forward, backward_flops: backward } : {};
	const spec = einsum.renamed(line.spec, group.names);
	return { path: line.path, spec, ...(kind ? { blocks: kind } : {}), m, k, n, times, flops, ...both };
}

// FLOPs if the MLPs that are never called ran too.
export function ifCalled({ model, way, at, state }) {
	if (!model.uncalled) return null;
	const groups = way.groups.map(group => ({ ...group, lines: group.lines.map(line => ({ ...line, unused: false })) }));
	const forward = ledger.totalFlops({ ...way, groups }, at, state.masked);
	return state.train ? 3n * forward : forward;
}

// A quotient as JSON has it: a whole number where it is one, else the nearest double.
function fraction(part, whole) {
	if (part % whole === 0n) return part / whole;
	return Number(numbers.decimals(part, whole, 25));
}

// JSON with every digit: a BigInt is written as a whole number.
export function json(value, indent = 2) {
	const marked = (_, one) => (typeof one === "bigint" ? `\u0000${one}\u0000` : one);
	return JSON.stringify(value, marked, indent).replace(/"\\u0000(-?\d+)\\u0000"/g, "$1");
}
