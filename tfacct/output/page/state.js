// The state of the knobs, and the link that restores it. The fragment of an address is never sent to a server.

import * as numbers from "./numbers.js";
import * as storage from "./storage.js";
import * as models from "./models.js";
import * as count from "./count.js";

const VERSION = "1";
const LARGEST = 10n ** 12n;

// The knobs at the start. Null is the model's own value: its longest context, its own sizes.
export const STILL = {
	model: null,
	against: null,
	ctx: null,
	step: "prefill",
	tokens: 64n,
	batch: 1n,
	source: null,
	shared: null,
	form: null,
	dtype: null,
	cache: null,
	card: "h100-sxm",
	masked: false,
	last: false,
	train: false,
	unfused: false,
	sizes: {},
};

// How each knob is written in a link, and read from one; undefined for what cannot be read.
const WHOLE = { write: String, read: text => whole(text) };
const FLAG = { write: () => "1", read: text => (text === "1" ? true : undefined) };
const word = known => ({ write: String, read: text => (known.includes(text) ? text : undefined) });

export function kinds(page) {
	const names = page.models.map(model => model.name);
	return {
		model: word(names),
		against: word(["config", ...names]),
		ctx: WHOLE,
		tokens: WHOLE,
		batch: WHOLE,
		source: WHOLE,
		shared: WHOLE,
		step: word(["prefill", "decode", "chunk"]),
		form: word(["expanded", "absorbed", "unpacked"]),
		dtype: word(storage.DTYPES),
		cache: word(storage.CACHES),
		card: word(page.devices.map(device => device.id)),
		masked: FLAG,
		last: FLAG,
		train: FLAG,
		unfused: FLAG,
	};
}

// A whole number from 1 to 10^12, as a link or a knob has it.
export function whole(text) {
	const value = numbers.readTokens(text);
	return value !== null && value >= 1n && value <= LARGEST ? value : undefined;
}

// The fragment that leads back to these knobs: only what differs from the start; an axis as `L.D`.
export function fragment(state, start, page) {
	const parts = [`v=${VERSION}`];
	for (const [name, kind] of Object.entries(kinds(page))) {
		if (state[name] === start[name]) continue;
		parts.push(
			`${name}=${state[name] === null || state[name] === false ? "" : encodeURIComponent(kind.write(state[name]))}`,
		);
	}
	for (const [axis, size] of Object.entries(state.sizes)) parts.push(`L.${axis}=${size}`);
	return parts.length > 1 ? `#${parts.join("&")}` : "";
}

// The knobs that a fragment names, and complaints about what of it cannot be read. 
export function parse(text, start, page) {
	const state = { ...start, sizes: { ...start.sizes } },
		complaints = [],
		known = kinds(page);
	for (const part of text.replace(/^#/, "").split("&").filter(Boolean)) {
		const cut = part.indexOf("="),
			name = part.slice(0, cut),
			value = decoded(part.slice(cut + 1));
		if (name === "v") {
			if (value !== VERSION) complaints.push(`this link is for version ${value} of the page, not ${VERSION}`);
		} else if (name.startsWith("L.") && Object.hasOwn(axisNames(page, state), name.slice(2)) && whole(value ?? "")) {
			state.sizes[name.slice(2)] = whole(value);
		} else if (Object.hasOwn(known, name) && value === "" && (STILL[name] === null || STILL[name] === false)) {
			state[name] = STILL[name];
		} else {
			const read = Object.hasOwn(known, name) && value !== undefined ? known[name].read(value) : undefined;
			if (read === undefined) complaints.push(`the link's ${part.slice(0, 60)} is ignored`);
			else state[name] = read;
		}
	}
	const why = refused(chosen(page, state.model), state.sizes);
	if (why) {
		complaints.push(`the link's sizes are ignored: ${why}`);
		state.sizes = {};
	}
	const fitting = fitted(state, page);
	const indivisible = "its block size does not divide the head size";
	if (fitting.cache !== state.cache) complaints.push(`the link's cache dtype is ignored: ${indivisible}`);
	return { state: fitting, complaints };
}

function decoded(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return undefined;
	}
}

// Why sizes are not possible together; empty if they are.
export function refused(model, changed) {
	const now = { ...model.sizes, ...changed };
	for (const [axis, rule] of model.rules) {
		if (rule === 2 && now[axis] % 2n) return `${axis} must be even`;
		if (now[axis] > now[rule]) return `${axis} is more than ${rule}`;
	}
	return "";
}

function axisNames(page, state) {
	return chosen(page, state.model).sizes;
}

export function chosen(page, name) {
	return page.models.find(model => model.name === name) ?? page.models[0];
}

// Only knobs that the model has: an encoder has no decode step, a model without heads none to share.
export function fitted(state, page) {
	const model = chosen(page, state.model),
		found = { ...state, model: model.name };
	if (!model.has_cache) found.step = "prefill";
	if (found.step !== "prefill") found.train = false;
	if (!model.source) found.source = null;
	if (!models.sharings(model).includes(found.shared)) found.shared = null;
	if (!models.forms(model).includes(found.form)) found.form = null;
	if (found.train || !model.logits) found.last = false;
	if (found.cache && !count.stores(model, found, found.cache)) found.cache = null;
	if (found.sizes.K || found.sizes.G) Object.assign(found, { sizes: count.changed(model, found), shared: null });
	found.sizes = Object.fromEntries(
		Object.entries(found.sizes).filter(([axis, size]) => axis in model.sizes && size !== model.sizes[axis]),
	);
	return found;
}
