// The notes of `tfacct flops --json` at these knobs: key, rank and text of each. Rank 1 changes the decision, 2 is an
// assumption, 3 is background. Notes that no knob changes are in the model's data; here are those with a number of the
// step.

import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as lines from "./lines.js";
import * as count from "./count.js";
import * as models from "./models.js";
import * as report from "./report.js";

const g = numbers.grouped;
const AT_MOST = 3; // notes shown at once, as under a table of the terminal
const note = (key, rank, text) => ({ key, rank, text });

// All of them, in the terminal's order.
export function notes(counted) {
	const hints = lengths(counted).map(text => note("hint", 1, text));
	return [...typed(counted), ...counts(counted), ...hints];
}

// The other notes are about the model as configured, whatever sizes replace its own.
function typed({ state }) {
	const found = Object.entries(state.sizes).map(([axis, size]) => `${axis} = ${g(size)}`);
	if (!found.length) return [];
	return [note("sizes", 1, `Notes describe the model as configured; the page uses ${found.join(", ")} instead.`)];
}

// About what is counted.
function counts(counted) {
	const { model, state } = counted;
	return [
		...readings(counted),
		...overtakes(counted).map(text => note("attention_overtakes", 1, `${text.slice(0, -1)}; ${here(counted)}.`)),
		...multiplyAdds(counted),
		...holding(counted, "train", "layers"),
		...beyondRule(counted),
		...latent(counted),
		...holding(counted, "source"),
		note("counted", 3, `Counted: ${models.convention(model, state)}.`),
		note("details", 3, model.uncounted),
		...defaults(model, state),
	];
}

const stored = model => (model.has_cache ? `weights and ${model.cache_name}` : "weights");
const MOVED = "Bytes moved: each matmul operand is read once, each result is written once";

// The notes of the page: the three of lowest rank, and the others.
export function shown(counted) {
	const every = [
		...typed(counted),
		...counts(counted),
		...holding(counted, "cache"),
		note("moved", 3, `${MOVED}${counted.fused ? "; fused attention writes no scores" : ""}.`),
		note("memory", 3, `Memory: ${stored(counted.model)}; no activations or engine buffers.`),
	];
	const first = new Set([...every].sort((one, other) => one.rank - other.rank).slice(0, AT_MOST));
	return [every.filter(one => first.has(one)), every.filter(one => !first.has(one))];
}

// About a context and a source past what the model was made for.
export function lengths({ model, state, at }) {
	const found = model.answers ? [model.warnings[0]] : [],
		context = BigInt(model.context);
	if (state.ctx !== null && at.S > context) {
		const [each, fixed] = (model.longer ?? [0, 0]).map(BigInt),
			longer = each * at.S + fixed;
		const embedding = longer ? `; the ${g(longer)} parameters of a longer position embedding are not included` : "";
		found.push(`${model.name} has a context of ${g(context)}. Counted at ${g(at.S)} anyway${embedding}.`);
	}
	if (state.source !== null && at.J > BigInt(model.source)) {
		const whose = `${model.name} of ${g(model.source)}`;
		found.push(`a source of ${g(at.J)} is longer than the model supports: ${whose}. Counted anyway.`);
	}
	return found;
}

// Notes of the model that hold at these knobs: each has a place in the order, and when it holds.
function holding({ model, state: { masked, train }, at: { I } }, ...places) {
	const holds = { "": true, masked, whole: !masked, reads: I > 0n, later: !I, train };
	const found = model.notes.map(text => text.split("\t"));
	return found
		.filter(([place, when]) => places.includes(place) && holds[when])
		.map(([, , key, rank, text]) => note(key, Number(rank), text));
}

// FLOPs as the model runs, and those with the MLPs that it stores and never calls.
function readings(counted) {
	const called = report.ifCalled(counted),
		{ idle } = counted.model;
	if (called === null || called === counted.flops) return [];
	const names = idle.map(paths.short).join(", ");
	return [
		`As it runs: ${g(counted.flops)} FLOPs. ${names} is stored but never called (called = false).`,
		`If it were called: ${g(called)} FLOPs.`,
	].map(text => note("never_called", 1, text));
}

// The context from which attention costs more than all other matmuls.
export function overtakes(counted) {
	const first = count.overtakes(counted);
	if (first === null) return [];
	const { at, limit, model, state } = counted;
	const narrow = model.notes.some(text => text.split("\t").slice(1, 3).join() === "whole,windows");
	const pairs = narrow && !state.masked && at.T > 1n ? ", with all T × S pairs counted" : "";
	const past = at.S <= limit && limit < first ? ` (beyond this model's ${g(limit)} positions)` : "";
	const whose = model.source ? "the decoder's self-attention" : "attention";
	const costs = `scores and values cost more than all other matmuls${pairs}`;
	return [`From ${g(first)} tokens on${past}, ${whose} ${costs}.`];
}

function here({ products, flops }) {
	const scores = products.filter(one => one.name === "attn_scores_values").reduce((sum, one) => sum + one.flops, 0n);
	return `here they take ${numbers.percent(scores, flops)} of the FLOPs`;
}

// The multiply-adds of an image encoder, in FLOPs two each.
function multiplyAdds({ model, flops }) {
	if (!model.reads_images) return [];
	const text = `Most papers on vision models print multiply-adds as FLOPs: ${numbers.si(flops / 2n)} here.`;
	return [note("multiply_adds", 1, text)];
}

// The difference from the rule of thumb: matmuls without parameters, parameters outside matmuls, and weights that do
// not run once per token.
function beyondRule({ model, state, products, tensors, flops, rule, active, params }) {
	const weighted = products.filter(({ line }) => lines.weightAxes(line));
	const read = new Set(weighted.map(({ line }) => lines.parameters(line)[0].path));
	const unread = tensors.filter(({ path }) => !read.has(path));
	const free = flops - weighted.reduce((sum, one) => sum + one.flops, 0n);
	const outside = (rule / active) * unread.reduce((sum, one) => sum + one.count * one.active, 0n);
	const found = [
		[free, `${model.mixes ? "matmuls of activations" : "attention scores and values"} (no parameters)`],
		[-outside, "parameters that no matmul reads"],
		[flops - rule - free + outside, "weights that do not run once per token"],
	].filter(([size]) => size);
	const thumb = `${state.train ? "6" : "2"}·${active === params ? "params" : "active"}·tokens`;
	const written = size => (size > 0n ? `+ ${numbers.si(size)}` : `− ${numbers.si(-size)}`);
	const terms = found.map(([size, words]) => `${written(size)} for ${words}`).join(", ");
	return found.length ? [note("beyond_rule", 2, `Difference from ${thumb}: ${terms}.`)] : [];
}

function latent(counted) {
	const { model, way, ways } = counted,
		runs = way.form ?? model.built_form;
	if (!runs) return [];
	const cheaper = `the cheaper one in this step (--set ${model.form}=FORM sets another)`,
		why = ways.length > 1 ? cheaper : "as set";
	return [note("latent", 2, `Latent attention is counted in ${runs} form, ${why}: ${model.forms[runs]}.`)];
}

function defaults(model, state) {
	const last = ([, value]) => value === null || typeof value === "boolean"; // sizes before switches
	const fields = Object.entries(report.left(model, state)).sort((one, other) => last(one) - last(other));
	const words = fields.map(([name, value]) => `${name} = ${format(value)}`).join(", ");
	return fields.length ? [note("defaulted", 3, `Defaults (not in the config): ${words}`)] : [];
}

function format(value) {
	if (Number.isInteger(value)) return g(value);
	return typeof value === "string" ? value : JSON.stringify(value).replaceAll(",", ", ").replaceAll(":", ": ");
}
