// The settings of the page: one knob each.

import * as numbers from "./numbers.js";
import * as models from "./models.js";
import * as state from "./state.js";
import * as storage from "./storage.js";
import * as count from "./count.js";
import * as dom from "./dom.js";
import * as stops from "./stops.js";
import * as sizes from "./sizes.js";

const { h } = dom;
const READS = "tokens of the encoder";
const ALSO = [
	["", "layers only"],
	["+head", "layers and output head"],
	["+head+embed", "layers, output head and embedding"],
];
const cards = devices => devices.map(device => [device.id, device.name]);

// Elements of all knobs of a model. `update` takes the knobs that change; `page` has the models and devices.
export function knobs(page, now, update) {
	const model = state.chosen(page, now.model),
		at = count.axes(model, now),
		[plain] = (now.dtype ?? "").split("+");
	const several = page.models.length > 1,
		fitting = storage.CACHES.filter(name => count.stores(model, now, name)),
		caches = [["", "as activations"], ...fitting.map(name => [name, name])];
	return [
		several
			? field(
					"Model",
					select(
						"model",
						page.models.map(one => [one.name, one.name]),
						model.name,
						name => update({ model: name, shared: null, form: null, sizes: {}, dtype: null }),
					),
				)
			: null,
		model.fixed
			? null
			: slider("ctx", "Context", at.S, "tokens, new ones included", stops.octaves(model, at.S), ctx => update({ ctx })),
		model.has_cache ? steps(now, update) : null,
		now.step === "chunk"
			? slider("tokens", "New tokens", at.T, "of the context", stops.powers(at.S), tokens => update({ tokens }))
			: null,
		slider("batch", "Batch", at.B, "sequences", stops.powers(4096n), batch => update({ batch })),
		model.source
			? slider("source", "Source", at.J, READS, stops.powers(BigInt(model.source) * 4n), source => update({ source }))
			: null,
		shared(model, now, update),
		models.forms(model).length
			? field(
					"Latent attention",
					select("form", [["", "auto"], ...models.forms(model).map(form => [form, form])], now.form ?? "", form =>
						update({ form: form || null }),
					),
				)
			: null,
		field(
			"Weights in",
			select("dtype", dtypes(model), plain, dtype => update({ dtype: dtype || null })),
			[
				model.quantized ? h("p.hint", published(model)) : null,
				model.gguf ? h("p.hint", mixtures(model.gguf)) : null,
			],
		),
		plain && storage.narrow(plain)
			? field("Quantize", select("also", ALSO, now.dtype.slice(plain.length), more => update({ dtype: plain + more })))
			: null,
		model.has_cache
			? field(
					"Cache in",
					select("cache", caches, now.cache ?? "", cache => update({ cache: cache || null })),
				)
			: null,
		field("Device", select("card", cards(page.devices), now.card, card => update({ card }))),
		flag("masked", "Masked: count visible pairs only", now.masked, masked => update({ masked })),
		model.logits ? flag("last", "Logits of the last position only", now.last, last => update({ last }), now.train) : null,
		flag("unfused", "Unfused attention: scores written to memory", now.unfused, unfused => update({ unfused })),
		flag("train", "Training step: forward and backward", now.train, train => update({ train }), now.step !== "prefill"),
		sizes.fields(model, now, update),
		h("p.ends", h("button.plain", { type: "button", id: "reset", onclick: () => update(null) }, "Reset")),
	];
}

function field(label, control, more) {
	return h("div.field", h("label", { for: control.id }, label), control, more ?? null);
}

function select(id, options, value, update) {
	const each = options.map(([name, text]) => h("option", { value: name, selected: name === value }, text));
	return h("select", { id, onchange: event => update(event.target.value) }, each);
}

function dtypes(model) {
	const first = model.quantized ? [["", "choose a dtype"]] : [["", "bf16"]];
	return [...first, ...storage.PLAIN.filter(name => model.quantized || name !== "bf16").map(name => [name, name])];
}

// llama.cpp's mixtures choose a type for each tensor by its name; their bytes are those of the model as configured.
function mixtures(found) {
	const size = ends => [...new Set(ends.map(bytes => numbers.binary(BigInt(bytes))))].join(" to ");
	const each = Object.entries(found).map(([name, ends]) => `${name} ${size(ends)}`);
	return `As GGUF, as configured: ${each.join(", ")}.`;
}

// The published format of quantized weights. The page cannot count it: a dtype must be chosen.
function published({ quantized }) {
	if (!quantized.name) return "Published in a quantized format that is not supported. Choose a dtype.";
	const bytes = numbers.binary(BigInt(quantized.bytes));
	return `Published in ${quantized.name}, ${bytes}. Choose a dtype to count bytes.`;
}

// A number that is typed (16k), and a slider over stops.
function slider(id, label, value, unit, steps, update) {
	const nearest = steps.reduce(
		(best, stop, at) => (stops.distance(stop, value) < stops.distance(steps[best], value) ? at : best),
		0,
	);
	const text = h("input", {
		id,
		type: "text",
		inputmode: "numeric",
		autocomplete: "off",
		spellcheck: "false",
		value: numbers.grouped(value),
		"aria-describedby": `${id}-unit`,
		onchange: event => {
			const read = state.whole(event.target.value);
			event.target.setAttribute("aria-invalid", String(read === undefined));
			if (read !== undefined) update(read);
		},
	});
	const range = h("input", {
		id: `${id}-slider`,
		type: "range",
		min: 0,
		max: steps.length - 1,
		step: 1,
		value: nearest,
		"aria-label": label,
		"aria-valuetext": `${numbers.grouped(value)} ${unit}`,
		oninput: event => update(steps[Number(event.target.value)]),
	});
	return h("div.field.slid", h("label", { for: id }, label), text, range, h("p.hint", { id: `${id}-unit` }, unit));
}

function steps(now, update) {
	return h(
		"fieldset.field.step",
		h("legend", "Step"),
		h(
			"div.tabs",
			["prefill", "decode", "chunk"].map(step => [
				h("input", {
					type: "radio",
					name: "step",
					id: `step-${step}`,
					value: step,
					checked: now.step === step,
					onchange: () => update({ step }),
				}),
				h("label", { for: `step-${step}` }, step),
			]),
		),
	);
}

// Key/value heads: only numbers that divide the query heads.
function shared(model, now, update) {
	const found = models.sharings(model);
	if (!found.length || now.sizes.K || now.sizes.G) return null;
	const heads = model.sizes.K * model.sizes.G,
		value = now.shared ?? model.sizes.K,
		each = heads / value;
	const name =
		each === 1n
			? "MHA: each query head has its own"
			: value === 1n
				? "MQA: all query heads share one"
				: `GQA: ${each} query heads share one`;
	const configured = value === model.sizes.K ? ", as configured" : "";
	const range = h("input", {
		id: "shared",
		type: "range",
		min: 0,
		max: found.length - 1,
		step: 1,
		value: found.indexOf(value),
		"aria-valuetext": `${value}, ${name}`,
		oninput: event => update({ shared: settled(found[Number(event.target.value)], model) }),
	});
	return h(
		"div.field.slid",
		h("label", { for: "shared" }, "Key/value heads"),
		h("output", { for: "shared" }, String(value)),
		range,
		h("p.hint", name + configured),
	);
}

const settled = (value, model) => (value === model.sizes.K ? null : value);

function flag(id, label, on, update, off = false) {
	return h(
		"div.flag",
		h("input", { id, type: "checkbox", checked: on, disabled: off, onchange: event => update(event.target.checked) }),
		h("label", { for: id }, label),
	);
}
