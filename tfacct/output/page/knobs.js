// The knobs: built once for a model, and set again whenever a state comes from elsewhere.

import * as numbers from "./numbers.js";
import * as models from "./models.js";
import * as state from "./state.js";
import * as storage from "./storage.js";
import * as count from "./count.js";
import * as dom from "./dom.js";
import * as stops from "./stops.js";
import * as sizes from "./sizes.js";

const { h } = dom;
const READS = "tokens that the encoder reads";
const ALSO = [
	["", "blocks alone"],
	["+head", "the head too"],
	["+head+embed", "head and table too"],
];
const cards = devices => devices.map(device => [device.id, device.name]);

// Elements of all knobs of a model. `turn` takes the knobs that change; `page` holds the models and devices.
export function knobs(page, now, turn) {
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
						name => turn({ model: name, shared: null, form: null, sizes: {}, dtype: null }),
					),
				)
			: null,
		model.fixed
			? null
			: slider("ctx", "Context", at.S, "tokens at the end of the step", stops.octaves(model, at.S), ctx => turn({ ctx })),
		model.keeps ? steps(now, turn) : null,
		now.step === "chunk"
			? slider("tokens", "New tokens", at.T, "of the context", stops.powers(at.S), tokens => turn({ tokens }))
			: null,
		slider("batch", "Batch", at.B, "sequences", stops.powers(4096n), batch => turn({ batch })),
		model.source
			? slider("source", "Source", at.J, READS, stops.powers(BigInt(model.source) * 4n), source => turn({ source }))
			: null,
		shared(model, now, turn),
		models.forms(model).length
			? field(
					"Latent attention",
					select("form", [["", "auto"], ...models.forms(model).map(form => [form, form])], now.form ?? "", form =>
						turn({ form: form || null }),
					),
				)
			: null,
		field(
			"Weights in",
			select("dtype", dtypes(model), plain, dtype => turn({ dtype: dtype || null })),
			[
				model.quantized ? h("p.hint", published(model)) : null,
				model.gguf ? h("p.hint", mixtures(model.gguf)) : null,
			],
		),
		plain && storage.narrow(plain)
			? field("which takes", select("also", ALSO, now.dtype.slice(plain.length), more => turn({ dtype: plain + more })))
			: null,
		model.keeps
			? field(
					"Cache in",
					select("cache", caches, now.cache ?? "", cache => turn({ cache: cache || null })),
				)
			: null,
		field("Card", select("card", cards(page.devices), now.card, card => turn({ card }))),
		flag("masked", "Only pairs that the mask keeps", now.masked, masked => turn({ masked })),
		model.logits ? flag("last", "Logits of the last position only", now.last, last => turn({ last }), now.train) : null,
		flag("unfused", "Unfused attention: scores written to memory", now.unfused, unfused => turn({ unfused })),
		flag("train", "Training step: forward and backward", now.train, train => turn({ train }), now.step !== "prefill"),
		sizes.fields(model, now, turn),
		h("p.ends", h("button.plain", { type: "button", id: "as-built", onclick: () => turn(null) }, "As built")),
	];
}

function field(label, control, more) {
	return h("div.field", h("label", { for: control.id }, label), control, more ?? null);
}

function select(id, options, value, turn) {
	const each = options.map(([name, text]) => h("option", { value: name, selected: name === value }, text));
	return h("select", { id, onchange: event => turn(event.target.value) }, each);
}

function dtypes(model) {
	const first = model.quantized ? [["", "choose a dtype"]] : [["", "bf16"]];
	return [...first, ...storage.PLAIN.filter(name => model.quantized || name !== "bf16").map(name => [name, name])];
}

// llama.cpp's mixtures choose a type for each tensor by its name: their bytes are those of the model as built.
function mixtures(found) {
	const size = ends => [...new Set(ends.map(bytes => numbers.binary(BigInt(bytes))))].join(" to ");
	const each = Object.entries(found).map(([name, ends]) => `${name} ${size(ends)}`);
	return `As GGUF, as built: ${each.join(", ")}.`;
}

// What a quantized model's file says of its weights: the page counts no format that a file alone decides.
function published({ quantized }) {
	if (!quantized.name) return "Its weights are stored quantized; their bytes are not guessed.";
	const bytes = numbers.binary(BigInt(quantized.bytes));
	return `Published in ${quantized.name}, ${bytes} as built. The page needs a dtype.`;
}

// A number that is typed (16k), and a slider over stops.
function slider(id, label, value, unit, steps, turn) {
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
			if (read !== undefined) turn(read);
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
		oninput: event => turn(steps[Number(event.target.value)]),
	});
	return h("div.field.slid", h("label", { for: id }, label), text, range, h("p.hint", { id: `${id}-unit` }, unit));
}

function steps(now, turn) {
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
					onchange: () => turn({ step }),
				}),
				h("label", { for: `step-${step}` }, step),
			]),
		),
	);
}

// Key/value heads: only numbers that divide the query heads.
function shared(model, now, turn) {
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
	const built = value === model.sizes.K ? ", as built" : "";
	const range = h("input", {
		id: "shared",
		type: "range",
		min: 0,
		max: found.length - 1,
		step: 1,
		value: found.indexOf(value),
		"aria-valuetext": `${value}, ${name}`,
		oninput: event => turn({ shared: settled(found[Number(event.target.value)], model) }),
	});
	return h(
		"div.field.slid",
		h("label", { for: "shared" }, "Key/value heads"),
		h("output", { for: "shared" }, String(value)),
		range,
		h("p.hint", name + built),
	);
}

const settled = (value, model) => (value === model.sizes.K ? null : value);

function flag(id, label, on, turn, off = false) {
	return h(
		"div.flag",
		h("input", { id, type: "checkbox", checked: on, disabled: off, onchange: event => turn(event.target.checked) }),
		h("label", { for: id }, label),
	);
}
