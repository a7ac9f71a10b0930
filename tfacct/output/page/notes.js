// What the terminal says under its table, sentence by sentence, at these knobs: the notes of `tfacct flops --json`.
// Sentences that hold whatever is turned come with the model; here are those that name a number of the step.

import * as numbers from "./numbers.js";
import * as paths from "./paths.js";
import * as count from "./count.js";
import * as says from "./says.js";

const g = numbers.grouped;

// All of them, in the terminal's order.
export function notes(counted) {
	return [...typed(counted), ...counts(counted), ...lengths(counted)];
}

// Sizes that were typed over leave the sentences about the model as it was built.
export function typed({ state }) {
	const found = Object.entries(state.sizes).map(([letter, size]) => `${letter} = ${g(size)}`);
	return found.length ? [`Sentences are of the model as built; ${found.join(", ")} is typed over it.`] : [];
}

// About what is counted.
export function counts(counted) {
	const { model, state } = counted;
	return [
		...readings(counted),
		...overtakes(counted),
		...holding(counted, "train", "blocks"),
		...latent(counted),
		...holding(counted, "source"),
		model.counted[(state.masked ? 2 : 0) + (state.last ? 1 : 0)],
		model.uncounted,
		...defaults(model, state),
	];
}

// About a context and a source past what the model was made for.
export function lengths({ model, state, at }) {
	const said = model.answers ? [model.warnings[0]] : [],
		context = BigInt(model.context);
	if (state.ctx !== null && at.S > context) {
		const [each, fixed] = (model.longer ?? [0, 0]).map(BigInt),
			longer = each * at.S + fixed;
		const table = longer ? `; the ${g(longer)} parameters of a longer position table are not included` : "";
		said.push(`${model.name} has a context of ${g(context)}. Counted at ${g(at.S)} anyway${table}.`);
	}
	if (state.source !== null && at.J > BigInt(model.source)) {
		const whose = `${model.name} of ${g(model.source)}`;
		said.push(`a source of ${g(at.J)} is longer than the model was made for: ${whose}. Counted anyway.`);
	}
	return said;
}

// Notes of the model that hold at these knobs: each has a place in the order, and when it holds.
export function holding({ model, state: { masked, train }, at: { I } }, ...places) {
	const holds = { "": true, masked, whole: !masked, reads: I > 0n, later: !I, train };
	const found = model.notes.map(text => text.split("\t"));
	return found.filter(([place, when]) => places.includes(place) && holds[when]).map(([, , text]) => text);
}

// FLOPs as the model runs, and if what it stores and never calls ran too.
function readings(counted) {
	const called = says.ifCalled(counted),
		{ idle } = counted.model;
	if (called === null || called === counted.flops) return [];
	const names = idle.map(paths.short).join(", ");
	return [
		`As it runs: ${g(counted.flops)} FLOPs. ${names} is stored but never called (called = false).`,
		`If it were called: ${g(called)} FLOPs.`,
	];
}

// Where attention outgrows the rest, if the context grows and the rest stays.
export function overtakes(counted) {
	const first = count.overtakes(counted);
	if (first === null) return [];
	const past = first > counted.limit ? `, past the ${g(counted.limit)} positions of its position embedding` : "";
	const whose = counted.model.source ? "the decoder's self-attention" : "attention";
	return [`From ${g(first)} tokens on${past}, ${whose} scores and values cost more than everything else together.`];
}

function latent(counted) {
	const { model, way } = counted,
		runs = way.form ?? model.built_form;
	if (!runs) return [];
	const other = says.otherwise(counted);
	if (other === null) return [`Latent attention runs ${runs}, as set: ${model.forms[runs]}.`];
	const name = other.latent_attention,
		more = `${name[0].toUpperCase()}${name.slice(1)}, it would take ${numbers.si(other.total_flops)}FLOPs`,
		why = `which takes fewer FLOPs here: ${model.forms[runs]}`;
	return [`Latent attention runs ${runs}, ${why}. ${more} (--set ${model.form}=${name}).`];
}

function defaults(model, state) {
	const fields = Object.entries(says.left(model, state));
	return fields.length ? [`defaulted: ${fields.map(([name, value]) => `${name} = ${spoken(value)}`).join(", ")}`] : [];
}

function spoken(value) {
	if (Number.isInteger(value)) return g(value);
	return typeof value === "string" ? value : JSON.stringify(value).replaceAll(",", ", ").replaceAll(":", ": ");
}
